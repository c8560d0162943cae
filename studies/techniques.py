"""What each technique of exchanging gradients saves, by nets, nodes and bandwidths (Poseidon, Zhang et al., ATC 2017; P3, Jayarajan et al., MLSys 2019; Horovod, Sergeev and Del Balso, 2018)."""
from study import line, note, table

TITLE = "Which technique of exchanging gradients saves most depends on the net"
CONTEXT = "10 Gb/s, simulated (virtual time), 32 samples a node; the same numbers in every run"
ASSUMES = ("`param_sync simulate`: trainings in virtual time, in which nodes have 6 TFLOP/s and 32 samples each, each port sends and receives at the bandwidth given, a message takes 50 us on its way and keeps a port 20 us, and nodes add 10 GB/s. "
           "Gradients go by a ring, but for factors, where each layer takes the scheme that sends less (`hybrid`). What [predictions](predictions.md) assumes, and what it leaves out, holds here. The same numbers on every machine.")
NETS = {"vgg16": "VGG-16", "vgg19-22k": "VGG-19, 22,000 classes", "resnet50": "ResNet-50", "gpt2": "GPT-2 small"}
WAYS = {"after the backward pass": ("ring", "end"), "overlap: each layer at once": ("ring", "per-layer"), "overlap, priorities": ("ring", "priority"),
        "overlap, priorities, fused to 4 MB": ("ring", "priority", "--fuse", "4M"), "overlap, priorities, factors": ("hybrid", "priority")}
NAMES = {way: way.replace("factors", "low-rank factors of gradients") for way in WAYS}
SAME = 1  # per cent of efficiency: lines that are nearer everywhere hide each other
NODES = (1, 2, 4, 8, 16, 32)
BANDWIDTHS = (1, 10, 40, 100)  # Gb/s
AT_NODES, AT_GBPS = 16, 10


def run(lab):
    nets = tuple(NETS)[:1] if lab.quick else tuple(NETS)
    nodes = (1, 4) if lab.quick else NODES
    cases = [(net, way, count, AT_GBPS) for net in nets for way in WAYS for count in nodes] + [
        (net, way, AT_NODES, rate) for net in nets for way in WAYS for rate in BANDWIDTHS if rate != AT_GBPS and not lab.quick]
    found = lab.simulate_all({case: arguments(*case) for case in cases})
    return [{"net": net, "way": way, "nodes": count, "gbps": rate, **found[net, way, count, rate]} for net, way, count, rate in cases]


def arguments(net, way, nodes, rate):
    scheme, order, *more = WAYS[way]
    return ("--model", net, "--nodes", nodes, "--bandwidth", rate, "--overhead", 20, "--scheme", scheme, "--order", order, "--steps", 4, *more)


def hidden(rows, first):
    """What lines a panel shows as one. `first`: the column of its first way."""
    def same(*numbers):
        return all(max(row[first + number] for number in numbers) - min(row[first + number] for number in numbers) <= SAME for row in rows)

    if same(1, 2, 3, 4):
        return note("all but the lowest line are the same", 1.1, 12)
    return note("priorities, fused or not: the same", 1.1, 12) if same(2, 3) else ""


def page(lab, found):
    at = {(row["net"], row["way"], row["nodes"], row["gbps"]): row for row in found}
    nets, nodes = (list(dict.fromkeys(row[name] for row in found if row["gbps"] == AT_GBPS)) for name in ("net", "nodes"))
    rows = [(count, *(round(100 * at[net, way, count, AT_GBPS]["efficiency"], 2) for net in nets for way in WAYS)) for count in nodes]
    panels = []
    for number, net in enumerate(nets):
        lines = [f"data using 1:{2 + number * len(WAYS) + i} {line(i)} title '{NAMES[way]}'" for i, way in enumerate(WAYS)]
        key = "" if number == 0 else "unset key\n"
        panels.append(f"{key}unset label\n{hidden(rows, 1 + number * len(WAYS))}set title '{NETS[net]}' offset 0,-0.7 font ',12'\nplot " + ", \\\n     ".join(lines) + "\n")
    lab.plot("set logscale x 2\nset xrange [0.9:36]\nset yrange [0:105]\nset xtics (1,2,4,8,16,32)\nset ytics 20\nset xlabel 'nodes' offset 0,0.5\nset ylabel 'efficiency (%)'\n"
             + "".join(panels), ["nodes", *(f"{net}_{way.replace(' ', '_')}" for net in nets for way in WAYS)], rows, panels="2,2", legend=3)
    rates = sorted({row["gbps"] for row in found})
    count = AT_NODES if not lab.quick else nodes[-1]
    head = ["net", "way", *(f"{rate} Gb/s" for rate in rates)]
    cells = [[NETS[net], way, *(f"{100 * at[net, way, count, rate]['efficiency']:.1f} %" for rate in rates)] for net in nets for way in WAYS]
    return f"Efficiency at {AT_GBPS} Gb/s; 100 %: as many times as fast as one node, as there are nodes. Below, that of {count} nodes by bandwidth.\n\n" + table(head, cells)
