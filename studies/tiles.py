"""Tiles sized to a cache (Project Adam, Chilimbi et al., OSDI 2014): time of a step over the bytes of weights that all samples of a batch use before the next ones."""
import array
import json
import pathlib
import random
import tempfile

from study import line, table

TITLE = "A layer larger than the last cache computes faster in tiles of its weights, and slower in very small ones"
CONTEXT = "One node, CPU device, batches of 64; a layer of 64 MiB of weights; fastest step of 3 runs by turns"
ASSUMES = ("One node on the CPU device, batches of 64 random samples, `param_sync --tile`. Each net has a layer of 64 MiB of weights between two small ones. The picture has the time of that layer's outputs (`--trace`), the table also that of a whole step, gradients and update included, which tiles leave as they are. A block computes 256 columns of a layer, so a "
           "tile is at most as large as the weights of these. Sizes take turns. A time is that of the fastest step of all turns, as in others other programs had a core; bars go up to the run whose fastest step was the slowest. Ratios are to the time without tiles. "
           "Times are those of one machine, on which other programs ran, and of a CPU. Weights are the same bit for bit with all tiles, which the study checks.")
SIZES = ("4K", "16K", "64K", "128K", "256K", "512K", "1M", "2M", "4M", "8M", "16M", "32M")
NETS = {"4096 x 4096": (4096, 4096), "32768 x 512": (32768, 512)}  # the middle layer, and the widths of the hidden ones
BATCH, INPUTS, STEPS = 64, 64, 5


def bytes_of(size):
    return int(size[:-1]) << {"K": 10, "M": 20}[size[-1]]


def caches(of=pathlib.Path("/sys/devices/system/cpu/cpu0/cache")):
    """Bytes of the data caches of a core, by name; empty where the system does not say."""
    found = {}
    for index in sorted(of.glob("index*")):
        level, kind, size = ((index / what).read_text().strip() for what in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = bytes_of(size)
    return found


def write_samples(file, steps):
    """A NumPy array of samples of noise, in any of two classes. A fifth of them is for testing."""
    rng, rows = random.Random(1), BATCH * steps * 5 // 4
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {INPUTS + 1}), }}".ljust(117) + "\n"
    numbers = array.array("f", [value for _ in range(rows) for value in (*(rng.gauss(0, 1) for _ in range(INPUTS)), rng.randrange(2))])
    file.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + numbers.tobytes())


def run(lab):
    sizes, turns, steps = (("4K", "128K"), 1, 2) if lab.quick else (SIZES, 3, STEPS)
    nets = {"1024 x 1024": (1024, 1024)} if lab.quick else NETS
    with tempfile.TemporaryDirectory() as folder:
        samples = pathlib.Path(folder) / "samples.npy"
        write_samples(samples, steps)
        base = ("--nodes", 1, "--in-process", "--data", samples, "--batch", BATCH, "--epochs", 1, "--lr", 0.001)
        traces = {(turn, net, size): pathlib.Path(folder) / f"{turn}-{net}-{size}.json" for turn in range(turns) for net in nets for size in (None, *sizes)}
        cases = {(turn, net, size): (*base, "--trace", traces[turn, net, size], "--hidden", ",".join(map(str, widths)), *(() if size is None else ("--tile", size)))
                 for turn in range(turns) for net, widths in nets.items() for size in (None, *sizes)}
        ran = lab.run_all("param_sync", cases, at_a_time=1)
        forward = {case: forward_ms(json.loads(trace.read_text())) for case, trace in traces.items()}
    found = []
    for net in nets:
        for size in (None, *sizes):
            runs = [ran[turn, net, size] for turn in range(turns)]
            found.append({"net": net, "tile": size, "forward_ms": [forward[turn, net, size] for turn in range(turns)], "step_ms": [step_ms(one) for one in runs],
                          "bands": runs[0]["layers"][1]["bands"], "passed_bytes": runs[0]["tile"]["passed_bytes_per_step"] if size else 0,
                          "same_weights": all(one["weights_hash"] == ran[0, net, None]["weights_hash"] for one in runs)})
    return {"caches": caches(), "rows": found}


def forward_ms(trace):
    """Of the large layer, in the fastest step."""
    return round(min(event["dur"] for event in trace["traceEvents"] if event["name"] == "forward layer 1") / 1e3, 2)


def step_ms(result):
    """Of the fastest step. The first one counts from the start of the program, and so is left out."""
    times = result["node_reports"][0]["step_times_ns"]
    return round(min(end - begin for begin, end in zip(times, times[1:])) / 1e6, 1)


def page(lab, found):
    rows, marks = found["rows"], found["caches"]
    nets = list(dict.fromkeys(row["net"] for row in rows))
    sizes = [row["tile"] for row in rows if row["net"] == nets[0] and row["tile"]]
    at = {(row["net"], row["tile"]): row for row in rows}
    right = 2 * bytes_of(sizes[-1])  # where layers are not cut
    columns, lines = ["bytes"], []
    for net in nets:
        columns += [f"ratio {net}", f"least {net}", f"most {net}", f"passed_MB {net}"]
    for size in (*sizes, None):
        cells = []
        for net in nets:
            least, most = (round(one / min(at[net, None]["forward_ms"]), 3) for one in (min(at[net, size]["forward_ms"]), max(at[net, size]["forward_ms"])))
            cells += [least, least, most, round(at[net, size]["passed_bytes"] / 1e6, 3)]
        lines.append((bytes_of(size) if size else right, *cells))
    walls = "".join(f"set arrow from {size}, graph 0 to {size}, graph 1 nohead dt (2,4) lw 1.5\nset label '{name}' at {size}, graph 0.03 right offset -0.4,0\n" for name, size in marks.items())
    ticks = ", ".join(f"'{size}' {bytes_of(size)}" for size in sizes[::2]) + f", 'none' {right}"
    ratios = ", \\\n     ".join(f"data using 1:{2 + 4 * i}:{3 + 4 * i}:{4 + 4 * i} with yerrorbars lw 1 pt 0 lc rgb '#888888' notitle, data using 1:{2 + 4 * i} {line(i)} title '{net}'" for i, net in enumerate(nets))
    passed = ", \\\n     ".join(f"data using 1:{5 + 4 * i} {line(i)} title '{net}'" for i, net in enumerate(nets))
    lab.plot(f"set multiplot layout 1,2\nset logscale x 2\nset xrange [{bytes_of(sizes[0]) // 2}:{right * 2}]\nset xtics ({ticks}) rotate by -45\nset xlabel 'bytes of a tile of weights (none: not cut)' offset 0,-0.5\n"
             f"set key inside top right opaque font ',11' title 'inputs x outputs'\nset yrange [0:2.6]\nset ylabel 'time of the layer''s outputs (1: not in tiles)'\n{walls}plot {ratios}\n"
             f"unset arrow\nunset label\nset yrange [0:*]\nset ylabel 'sums passed on in a step, written and read (MB)'\nplot {passed}\nunset multiplot\n", columns, lines)
    assert all(row["same_weights"] for row in rows), "weights depend on tiles"
    cells = [[size or "none"] + [cell for net in nets for cell in (at[net, size]["bands"], f"{at[net, size]['passed_bytes'] / 1e6:.1f}", *beside(at[net, size], at[net, None]))] for size in (*sizes, None)]
    head = ["tile", *(what for net in nets for what in (f"{net}: tiles of a block", "MB passed on in a step", "outputs, ms", "of that without tiles", "a step, of that without tiles"))]
    told = ", ".join(f"{name} {size >> 10} KiB" for name, size in marks.items()) or "this system does not say"
    return f"Left: the time of the layer's outputs; dashed: the caches of a core ({told}). Right: the bytes of sums that a step passes on between tiles, as `--json` has them.\n\n" + table(head, cells)


def beside(row, whole):
    """Milliseconds of the layer's outputs, of the fastest and the slowest run; and what the fastest ones, and steps, take of the time without tiles."""
    return (f"{min(row['forward_ms']):.0f} to {max(row['forward_ms']):.0f}", f"{min(row['forward_ms']) / min(whole['forward_ms']):.2f}", f"{min(row['step_ms']) / min(whole['step_ms']):.2f}")
