"""`make bench`: every measurement in a short round; a measurement's own module takes longer ones."""

from bench import generation, open_calls

if __name__ == "__main__":
    generation.main(["--due", "20000", "--rounds", "3"])
    open_calls.main(["--rounds", "2", "--samples", "20"])
