"""Running other programs in tests: their output in one piece, and an end to those that hang."""
import subprocess

LIMIT_S = 120  # a program that takes longer hangs


def attempt(*command, **options):
    """The finished process; what it wrote, to standard error too, is its `stdout`."""
    return subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S, check=False, **options)


def call(*command, **options):
    """What a program wrote that must succeed."""
    done = attempt(*command, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nexited with {done.returncode}:\n{done.stdout}")
    return done.stdout
