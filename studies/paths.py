"""Codes over several paths, of which one is slow or lost: Reed-Solomon codes take the first chunks that come, LT codes (Luby, FOCS 2002) as many symbols as each path carries."""
import statistics

from study import note, style, table

TITLE = "Coded transfers do not wait for a slow path: a spare path bears its loss, and LT codes use what it still carries"
PROGRAMS = ("coded_transfer",)
CONTEXT = "1 MiB over 5 paths of 1 MiB/s each, of which one is slower; CPU device, real time; a point is the median of 3 runs"
ASSUMES = ("The example `coded_transfer`: sender and receiver in one process, CPU device, 1,024 chunks of 1 KiB, 5 connections (p2p). A path's speed is how fast the receiver takes from it (`--rate`, `--slow`): the receiver waits for deadlines on its device, and there is no network that is slow. So the paths "
           "share nothing, and their speeds do not change. Time is from the start of the receiver's kernel until enough has come and is decoded; connections are open before. \"Ideal\" is what the speeds allow: the bytes divided by the speed of all paths together. A lost path ends after 50,000 bytes (`--kill`), which count: so a transfer may be a little faster than its ideal. Sent: "
           "what the sender has put into its sockets, of the buffer's bytes, with what is still in rings when the receiver says stop (64 KiB for each direction of a path). Codes take turns, one run at a time. Two cores.")
CODES = {"plain": "plain: all paths are needed", "rs:1": "rs:1: one of 5 chunks is spare", "rs:2": "rs:2: two of 5 chunks are spare", "lt": "lt: any symbols, a few more than chunks"}
FACTORS, TURNS = (1, 2, 4, 8, 16), 3
PATHS, BYTES, RATE, CHUNK = 5, 1 << 20, 1 << 20, 1024
LOST = 0  # in place of a factor


def run(lab):
    factors, turns = ((1, 16, LOST), 1) if lab.quick else ((*FACTORS, LOST), TURNS)
    settings = {}
    for turn in range(turns):
        for factor in factors:
            for code in CODES:
                slow = ("--kill", "1@50000") if factor == LOST else ("--slow", f"1:{factor}")
                settings[code, factor, turn] = ("--code", code, "--paths", PATHS, "--bytes", BYTES // (8 if lab.quick else 1), "--chunk", CHUNK, "--rate", RATE, *slow)
    plain_lost = {key: settings.pop(key) for key in [("plain", LOST, turn) for turn in range(turns)]}
    done = lab.run_all("coded_transfer", settings, at_a_time=1)  # time is measured
    found = []
    for factor in factors:
        for code in CODES:
            if (code, factor, 0) in plain_lost:  # it writes no results: it fails, as a test of the program checks
                found.append({"code": code, "factor": factor, "seconds": None})
                continue
            runs = [done[code, factor, turn] for turn in range(turns)]
            found.append({"code": code, "factor": factor, "seconds": [round(one["seconds"] + one["decode_seconds"], 4) for one in runs], "decode_seconds": [one["decode_seconds"] for one in runs],
                          "taken": [round(one["taken"] / one["chunks"], 4) for one in runs], "sent": [round(one["sent_bytes"] / (one["chunks"] * CHUNK), 3) for one in runs],
                          "slow_share": [round(one["paths"][1]["bytes"] / sum(path["bytes"] for path in one["paths"]), 4) for one in runs]})
    return found


def ideal(factor, size=BYTES):
    """Seconds that the speeds of all paths together allow, of a slow path by this factor, or a lost one."""
    return size / (RATE * (PATHS - 1 + (1 / factor if factor else 0)))


def middle(row, what):
    return None if row["seconds"] is None else statistics.median(row[what])


def page(lab, found):
    factors = [factor for factor in dict.fromkeys(row["factor"] for row in found) if factor != LOST]
    at = {(row["code"], row["factor"]): row for row in found}
    rows = [(factor, ideal(factor), *(cell for code in CODES for cell in (middle(at[code, factor], "seconds"), min(at[code, factor]["seconds"]), max(at[code, factor]["seconds"])))) for factor in factors]
    columns = ["factor", "ideal", *(f"{what}_{code}" for code in CODES for what in ("seconds", "least", "most"))]
    lines = ["data using 1:2 with lines lw 1 dt 2 lc rgb '#8a8a8a' title 'ideal: all that the paths carry'"]
    lines += [f"data using 1:{3 + 3 * i}:{4 + 3 * i}:{5 + 3 * i} with yerrorlines {style(i)} title '{text}'" for i, text in enumerate(CODES.values())]
    lab.plot("set logscale xy\nset xrange [0.9:18]\nset yrange [0.1:5]\nset xtics (" + ", ".join(f"'{factor}' {factor}" for factor in factors) + ")\nset ytics (0.1, 0.2, 0.3, 0.5, 1, 2, 4)\n"
             "set xlabel 'how many times slower one of the 5 paths is'\nset ylabel 'time of the transfer (s)'\n"
             + note("plain: the slow path has a fifth of all chunks", "graph 0.62", "graph 0.93", "right") + "plot " + ", \\\n     ".join(lines) + "\n", columns, rows, legend=3)
    shown = []
    for row in found:
        state = "lost" if row["factor"] == LOST else f"{row['factor']} × slower"
        if row["seconds"] is None:
            shown.append([state, row["code"], "fails, and names the path", "", "", "", "", "", ""])
            continue
        shown.append([state, row["code"], f"{middle(row, 'seconds'):.3f}", f"{min(row['seconds']):.3f}, {max(row['seconds']):.3f}", f"{middle(row, 'seconds') / ideal(row['factor']):.2f}", f"{1e3 * middle(row, 'decode_seconds'):.1f}",
                      f"{middle(row, 'taken'):.3f}", f"{100 * middle(row, 'slow_share'):.1f} %", f"{middle(row, 'sent'):.2f}"])
    return table(["one path is", "code", "seconds", "least, most", "of the ideal", "of it decoding, ms", "chunks taken, of those of the buffer", "bytes taken of the slow path", "bytes sent, of the buffer's"], shown)
