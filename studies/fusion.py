"""Small messages: neighbouring layers exchanged together (Horovod, Sergeev and Del Balso, 2018)."""
from study import line, table

TITLE = "Small layers should go together where a message costs much, but not all of them"
CONTEXT = "ResNet-50, 16 nodes, 10 Gb/s, simulated (virtual time); the same numbers in every run"
ASSUMES = ("`param_sync simulate`: a training of ResNet-50 in virtual time, 16 nodes with 32 samples each and 6 TFLOP/s, 10 Gb/s, a ring, what the next forward pass needs first is sent first. A message takes 50 us on its way, and keeps a port for "
           "the time given. Neighbouring layers go together until they have so many bytes. The same numbers on every machine.")
SIZES = ("16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M")
BYTES = {"none": 2 << 10} | {size: int(size[:-1]) << (10 if size[-1] == "K" else 20) for size in SIZES}
TICKS = {"none": "alone", "256M": "all\\n(102 MB)"}  # other sizes: as they are
OVERHEADS = (1, 20, 50, 100)  # us


def run(lab):
    sizes = ("none", "4M", "256M") if lab.quick else ("none", *SIZES)
    base = ("--model", "resnet50", "--nodes", 16, "--order", "priority", "--steps", 4)
    cases = {(size, overhead): (*base, "--overhead", overhead, *(() if size == "none" else ("--fuse", size))) for size in sizes for overhead in OVERHEADS}
    found = lab.simulate_all(cases)
    return [{"fuse": size, "overhead_us": overhead, **found[size, overhead]} for size, overhead in cases]


def page(lab, found):
    sizes = list(dict.fromkeys(row["fuse"] for row in found))
    at = {(row["fuse"], row["overhead_us"]): 100 * row["efficiency"] for row in found}
    lab.plot("set logscale x 2\nset xrange [1500:400000000]\nset xlabel 'bytes of neighbouring layers that are sent together (alone: each layer by itself)'\nset ylabel 'efficiency (% of 16 x one node)'\nset yrange [0:100]\nset xlabel offset 0,-0.5\nset bmargin 5\nset xtics (" + ", ".join(f'"{TICKS.get(size, size)}" {BYTES[size]}' for size in sizes)
             + ")\nset key inside right bottom title 'a message keeps a port for'\nplot " + ", \\\n     ".join(f"data using 1:{2 + i} {line(i)} title '{overhead} us'" for i, overhead in enumerate(OVERHEADS)) + "\n",
             ["bytes", *(f"overhead_{overhead}_us" for overhead in OVERHEADS)], [(BYTES[size], *(round(at[size, overhead], 2) for overhead in OVERHEADS)) for size in sizes])
    best = {overhead: max(sizes, key=lambda size: at[size, overhead]) for overhead in OVERHEADS}
    return table(["together", *(f"{overhead} us" for overhead in OVERHEADS)],
                 [[size, *(f"{at[size, overhead]:.1f} %" + (" (best)" if best[overhead] == size else "") for overhead in OVERHEADS)] for size in sizes])
