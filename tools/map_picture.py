#!/usr/bin/env python3
"""The picture of the map in the docs: `python tools/map_picture.py MODEL_FOLDER docs/images/explore-map.png [light|dark|phone]`.

A made-up society: tasks put together from words below, embedded by the model that is named (`words`: by the words
that they have in common), mapped and photographed.
"""

import random
import shutil
import sys
import tempfile
from itertools import product
from pathlib import Path

from playwright.sync_api import sync_playwright

from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.index.build import no_cost, write_indexed
from camel.library.execution import run_job
from camel.maps.embedding import SentenceModel
from camel.maps.mapping import MapJob
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.runs.settings import Settings

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.browser import ARGUMENTS, Server
from tests.support.mapped import Words

FIELDS = {
    ("Programmer", "Stock Trader"): (
        "a trading bot|an options pricing model|a portfolio dashboard|an order book feed|a dividend alert|a back-testing engine|a pairs strategy|a tax-lot report|a volatility index|a news sentiment score",
        "moving averages|risk limits|slippage and fees|live market data|stop-loss orders|a Monte Carlo simulation|earnings announcements|currency hedging|latency measurements|a paper-trading account",
    ),
    ("Game Designer", "Student"): (
        "a platform game|a turn-based battle|a dungeon crawler|a racing game|a puzzle room|a farming simulation|a card game|a space shooter|a detective adventure|a co-op board game",
        "level design|enemy pathfinding|a scoring system|save files|procedural maps|multiplayer rooms|pixel art sprites|controller support|a tutorial|boss fights",
    ),
    ("Teacher", "Parent"): (
        "a fractions lesson|a reading plan|a photosynthesis lesson|a spelling quiz|a history timeline|a geometry project|a French conversation class|an exam timetable|a school play|a class debate",
        "group work|homework sheets|slow learners|a short test|pictures on the wall|a rubric for marks|questions for discussion|a visit to the library|praise and feedback|ten-year-old pupils",
    ),
    ("Chef", "Restaurant Owner"): (
        "a tasting menu|a sourdough loaf|a vegan dessert|a seafood stew|a spice blend|a brunch buffet|a mushroom risotto|a wood-fired pizza|a pickling workshop|a chocolate cake",
        "seasonal vegetables|wine pairing|food allergies|prep lists for the kitchen|portion costs|slow fermentation|plating|leftovers|a charcoal grill|local suppliers",
    ),
    ("Doctor", "Patient"): (
        "a sleep diary|a blood pressure log|an asthma plan|knee surgery recovery|a migraine calendar|a diabetes diet|a vaccination record|back pain therapy|a pregnancy check-up|a heart examination",
        "side effects of medicine|daily symptoms|breathing exercises|laboratory results|when to call the clinic|a family history|follow-up appointments|physical therapy|salt and sugar|an emergency card",
    ),
    ("Architect", "Home Owner"): (
        "a passive house|a loft conversion|a garden studio|a spiral staircase|a timber facade|a kitchen extension|a flat roof|an underground garage|a winter garden|a tiny house",
        "daylight studies|insulation|building permits|load-bearing walls|concrete foundations|heat pumps|floor plans|accessible doors|rainwater drainage|acoustic panels",
    ),
    ("Composer", "Film Director"): (
        "a string quartet|a chase scene cue|a folk song|a lullaby|an opening title theme|a jazz trio piece|a choir arrangement|an electronic soundtrack|a funeral march|a waltz",
        "minor chords|percussion layers|a solo cello|tempo changes|studio recording|a recurring motif|silence before the climax|modal scales|sheet music|a brass section",
    ),
    ("Lawyer", "Start-up Founder"): (
        "a shareholder agreement|a privacy policy|a trademark filing|an employment contract|a software license|an office lease|a patent application|a supplier contract|a merger letter|a data breach notice",
        "liability clauses|termination rights|court jurisdiction|intellectual property|non-compete terms|arbitration|confidentiality|regulators in Europe|investor consent|signature pages",
    ),
    ("Gardener", "Beekeeper"): (
        "a pollinator hedge|a compost heap|an apple orchard|a herb spiral|a vegetable bed|a wildlife pond|a rose border|a greenhouse|a wildflower meadow|a beehive stand",
        "winter pruning|soil acidity|aphids and slugs|native plants|drip watering|crop rotation|bee forage|mulching|seed saving|frost protection",
    ),
    ("Astronomer", "Journalist"): (
        "a comet sighting|an exoplanet transit|a telescope mirror|a meteor shower|a galaxy atlas|a solar eclipse|a radio signal|the rings of Saturn|a black hole image|a lunar map",
        "light pollution|spectral lines|orbital periods|long exposures|amateur observers|a star chart|distances in light years|a press release|calibration frames|a planetarium show",
    ),
    ("Historian", "Museum Curator"): (
        "a Bronze Age pottery exhibit|a coin hoard|a sailor's letters|a medieval market model|a trade route map|an old mill's archive|a Roman mosaic|a war diary|a textile collection|a castle excavation",
        "carbon dating|display labels|oral history|conservation of paper|provenance research|school tours|maps from the archive|replicas to touch|loans between museums|a printed catalogue",
    ),
    ("Coach", "Marathon Runner"): (
        "an interval session|a marathon taper|a hill workout|a recovery week|a triathlon season|a stretching routine|an altitude camp|a strength programme|a trail race|a relay team",
        "heart-rate zones|race-day nutrition|injury prevention|running shoes|hydration|lactate threshold|mental focus|weekly mileage|cross-training|sleep and rest",
    ),
    ("Data Scientist", "City Planner"): (
        "a bus delay model|a bike lane map|a noise sensor network|a housing density study|a flood risk map|a parking forecast|an air quality report|a tram timetable|a pedestrian survey|a traffic light plan",
        "open data portals|regression models|rush hour peaks|census districts|missing values|geographic layers|neighborhood meetings|a public dashboard|satellite images|simulation of scenarios",
    ),
    ("Poet", "Translator"): (
        "a sonnet about the sea|a haiku cycle|a lighthouse ballad|a free verse poem|a villanelle|an ode to bread|an elegy|a limerick|a nursery rhyme|a prose poem",
        "iambic metre|rhyme schemes|metaphors of light|line breaks|untranslatable words|a refrain|the reader's breath|childhood memory|assonance|an anthology",
    ),
    ("Engineer", "Farmer"): (
        "a solar water pump|a soil moisture sensor|a grain dryer|a milking robot|a crop drone|a barn ventilation system|an electric tractor|a wind turbine|a biogas plant|an irrigation valve",
        "battery storage|spare parts|dusty conditions|wireless signals|maintenance intervals|energy bills|steel frames|harvest deadlines|a control panel|safety switches",
    ),
    ("Chemist", "Perfumer"): (
        "a citrus accord|an emulsion|a solvent extraction|a titration|a crystal growing kit|a soap recipe|a fixative test|a distillation column|a polymer gel|a color indicator",
        "reaction yield|volatile oils|pH buffers|reaction temperature|gas chromatography|molecular structure|protective gloves|catalysts|shelf life|waste disposal",
    ),
    ("Accountant", "Freelancer"): (
        "a tax return|an invoice template|a travel expense claim|a pension plan|a cash-flow forecast|a balance sheet|a payroll run|a loan application|an audit file|a price list",
        "value added tax|late payments|depreciation|bank statements|deductible costs|quarterly deadlines|spreadsheets|currency exchange|receipts|a reserve for bad months",
    ),
    ("Travel Guide", "Family"): (
        "a week in the Alps|a desert caravan tour|a city walk|an island ferry trip|a railway journey|a canyon hike|a camping weekend|a river cruise|a safari|a winter holiday",
        "children under ten|a small budget|rainy days|local food|hotel bookings|packing lists|scenic viewpoints|train connections|travel insurance|souvenirs",
    ),
    ("Psychologist", "Manager"): (
        "a feedback meeting|a burn-out programme|a conflict mediation|a motivation survey|an onboarding interview|a team retreat|a leadership course|a remote work policy|a mentoring scheme|an exit interview",
        "active listening|trust in the team|stress in the office|clear goals|shy employees|meeting habits|anonymous answers|cultural differences|praise and criticism|work-life balance",
    ),
    ("Marine Biologist", "Diver"): (
        "a coral reef survey|a seagrass map|a fish identification card|a plankton sample|a turtle tagging trip|a whale song recording|a kelp forest dive|a jellyfish bloom|a shark census|an octopus study",
        "water temperature|underwater cameras|bleaching events|dive safety|GPS coordinates|volunteer divers|microplastics|tides and currents|species counts|protected areas",
    ),
}
VERBS = "Plan|Design|Write|Improve|Explain|Prepare|Review"
LOOKS = {
    "light": "area=-0.36,0.3;0.1,0.42;0.36,0.3;0.42,-0.1;0.36,-0.3;0.1,-0.3;-0.3,-0.2;-0.42,0.1",
    "dark": "color=length",
    "phone": "",
}
STOPS = [Stop("done", "done")] * 7 + [Stop("max_messages", "40")] * 2 + [Stop("user_no_instruction", "3")]


def society(where: Path) -> None:
    """A run of made-up conversations."""
    chance, made = random.Random(1), []  # noqa: S311 - for a picture
    for number, ((assistant, user), (things, aspects)) in enumerate(FIELDS.items()):
        for task, (thing, aspect) in enumerate(product(things.split("|"), aspects.split("|"))):
            text = f"{chance.choice(VERBS.split('|'))} {thing}, with attention to {aspect}."
            messages = [
                Message(n, "user", user, "Instruction: continue", model="m", usage=Usage(500, 90, 0, 1))
                for n in range(chance.choice([2, 8, 14, 24, 40]))
            ]
            seats = [Speaker("user", user), Speaker("assistant", assistant)]
            stop = chance.choice(STOPS)
            made.append(
                Transcript(f"{number:03d}_{task:03d}", Task(text), seats, messages, stop, "ai_society")
            )
    chance.shuffle(made)
    folder = RunFolder(where)
    folder.create(Settings("f", {"scenario": "ai_society"}, "0"))
    for shard, start in enumerate(range(0, len(made), 512)):
        path = folder.data_path("conversations", shard, new_attempt(), ".parquet")
        written = write_indexed(folder, "conversations", path, made[start : start + 512], "f", no_cost)
        file, size = folder.persist(path)
        folder.commit(Marker("conversations", shard, file, written.rows, written.sha256, "f", {}, size))


def photograph(run: Path, out: Path, look: str) -> None:
    """Open the map with a line drawn, and take its picture."""
    size = {"width": 390, "height": 844} if look == "phone" else {"width": 1280, "height": 800}
    server = Server(run)
    try:
        with sync_playwright() as playwright:
            arguments = [one for one in ARGUMENTS if one != "--disable-gpu"]
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=[*arguments, "--enable-unsafe-swiftshader"]
            )
            phone = look == "phone"
            page = browser.new_page(
                viewport=size,
                color_scheme="dark" if look == "dark" else "light",
                has_touch=phone,
                is_mobile=phone,
            )
            page.goto(f"{server.url}/map?{LOOKS[look]}")
            page.wait_for_selector("#map[data-drawn]")
            page.wait_for_timeout(800)
            page.screenshot(path=out)
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    model, target = sys.argv[1:3]
    keep = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    with tempfile.TemporaryDirectory() as scratch:
        where = keep or Path(scratch) / "society"
        if not where.exists():
            society(where)
            run_job(MapJob(str(where), (Words() if model == "words" else SentenceModel(model))))
        photograph(where, Path(target), sys.argv[3] if len(sys.argv) > 3 else "light")
