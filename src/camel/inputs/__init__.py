"""Input tables: rows of files, datasets or objects in memory from which conversations are generated."""
