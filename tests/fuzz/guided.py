"""One reader under atheris: inputs are chosen by what they reach. In an environment of its own (`tests/fuzz/requirements.txt`).

python -m venv .venv-fuzz && .venv-fuzz/bin/pip install -e . -r tests/fuzz/requirements.txt
.venv-fuzz/bin/python -m tests.fuzz.guided --reader tar --runs 1000000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ckptctl"]):
    from tests.fuzz.engine import check
    from tests.fuzz.readers import readers


def main() -> None:
    """Feed the reader, beginning with its good samples; ends with a crash file where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("--reader", choices=[*readers()], required=True)
    parser.add_argument("--runs", type=int, default=-1, help="inputs (default: until it is interrupted)")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    reader = readers()[wanted.reader]

    def take(data: bytes) -> None:
        fault = check(reader, data)
        if fault is not None:
            raise AssertionError(f"{fault.what}\n{fault.trace}")

    with tempfile.TemporaryDirectory(prefix="ckptctl-corpus-") as folder:
        corpus, tokens = Path(folder) / "corpus", Path(folder) / "tokens.dict"
        corpus.mkdir()
        for number, sample in enumerate(reader.samples):
            (corpus / str(number)).write_bytes(sample)
        tokens.write_text("".join(map(_quoted, reader.tokens)))
        options = [f"-runs={wanted.runs}", f"-seed={wanted.seed}", f"-dict={tokens}", "-max_len=65536"]
        atheris.Setup([sys.argv[0], *options, str(corpus)], take)
        atheris.Fuzz()


def _quoted(token: bytes) -> str:
    """A token as a line of libFuzzer's dictionary."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in token[:32]) + '"\n'


if __name__ == "__main__":
    main()
