"""``python -m gradformer``: the command line, where the program is not on the path."""

from gradformer.cli import main

if __name__ == "__main__":
    main()
