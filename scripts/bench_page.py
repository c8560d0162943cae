#!/usr/bin/env python3
"""Makes one page of what gpusock-bench has measured: tables, and pictures by gnuplot.

usage: bench_page.py FOLDER FILE.json...

FILE.json: what gpusock-bench --json has written. FOLDER gets index.html, which needs no other file, and the pictures of it as NAME-*.svg,
where NAME is that of a FILE. Without gnuplot the page has no pictures, and says so.
Exit status: 0 made, 1 a file cannot be read or written, or a picture cannot be drawn, 2 misuse.
"""
import html
import json
import math
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

# As in the pictures of studies (studies/study.py): lines that can be told apart in black and white.
COLOURS = ("#000000", "#d9731a", "#1f2f9c", "#2f9150", "#a82f4a", "#3d0f4d")
POINTS = (7, 4, 9, 12, 5, 6)
DASHES = ("1", "(9,4)", "(3,3)", "(10,3,3,3)")
BINS = 8  # of a histogram's picture, in each octave of time

TITLES = {"lat": "Round trip", "bw": "Bandwidth", "conn": "Connections", "rate": "Round trips a second", "scale": "Round trip while many sockets exist"}
P50, P99, TRIPS = ("p50_ns", "p50 µs", 1e-3), ("p99_ns", "p99 µs", 1e-3), ("round_trips_per_s", "round trips/s", 1)
# Key in the JSON, title, and by what a figure is multiplied. The ratio is that of the first one.
FIGURES = {"lat": (P50, P99),
           "bw": (("gigabytes_per_s", "GB/s", 1), ("messages_per_s", "messages/s", 1)),
           "conn": (("connections_per_s", "connections/s", 1), P50, P99),
           "rate": (TRIPS, P50, P99),
           "scale": (P50, P99, TRIPS)}
LESS_IS_BETTER = ("lat", "scale")
NO_GNUPLOT = "no pictures: gnuplot is not installed; install the package gnuplot-nox, or run ./run install-deps"
STYLE = """body { font: 15px/1.5 sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2em; border-top: 1px solid #ccc; padding-top: 1em }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
th, td { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right } th:first-child, td:first-child { text-align: left }
table.facts th { text-align: left; vertical-align: top } table.facts td { text-align: left }
svg { max-width: 100%; height: auto } .note { color: #555 } .warning { color: #a82f4a }"""


class Report:
    """What one FILE.json holds."""

    def __init__(self, file):
        self.name, self.json = file.stem, json.loads(file.read_text(encoding="utf-8"))
        self.kind, self.options, self.rows = self.json["benchmark"], self.json["options"], self.json["sizes"]
        self.contestants = [(each["name"], each["description"]) for each in self.json["contestants"]]
        self.rival = self.contestants[1][0]
        self.figures = FIGURES[self.kind]
        self.several_groups = len({row["group"] for row in self.rows}) > 1
        if not self.rows or any(not row["rounds"] for row in self.rows):
            raise ValueError("it has no rounds")

    def title(self):
        options = self.options
        by = "host threads" if options["between"] == "threads" else "kernels"
        sockets = f", {options['sockets']} sockets" if isinstance(options["sockets"], int) and options["sockets"] > 1 else ""
        if options.get("window", 1) > 1:
            sockets = f", {options['window']} messages of a socket on their way"
        group = "" if self.several_groups or options["between"] == "threads" else f", calls by a {options['group']}"
        return f"{TITLES[self.kind]} over {options['link']}, between {by}{group}{sockets}"

    def ratios(self, row):
        """Quartiles of gpusock's figure / its rival's, over the rounds in which the rival has one: three numbers, or none."""
        key = self.figures[0][0]
        found = sorted(each["gpusock"][key] / each[self.rival][key] for each in row["rounds"] if each[self.rival][key] > 0)
        if not found:
            return None
        return statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3

    def outer_rows(self):
        """The rows of the first and the last size and number of sockets."""
        def place(row):
            return row["bytes"], row.get("sockets")

        return [row for row in self.rows if place(row) in (place(self.rows[0]), place(self.rows[-1]))]

    def lines(self, row, name):
        """The lines of a picture on which a contestant's figure of this row is."""
        group = f", a {row['group']}" if name == "gpusock" and self.several_groups else ""
        if "in_use" not in row:
            return [name + group]
        uses = [", one in use"] * (row["in_use"] == 1) + [", all by turns"] * (row["in_use"] == row["sockets"])
        return [name + group + use for use in uses]

    def label(self, row):
        sockets = f", {row['sockets']:,} socket{'s' if row['sockets'] > 1 else ''}" if "sockets" in row else ""
        if row.get("sockets", 1) > 1 and "in_use" in row:
            sockets += ", one in use" if row["in_use"] == 1 else ", all by turns"
        return f"{row['bytes']:,} B{sockets}" + (f", calls by a {row['group']}" if self.several_groups else "")


def number(value):
    """Four digits, and no exponent."""
    if value == 0 or not math.isfinite(value):
        return "–"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def quartiles(found):
    return "–" if found is None else f"{number(found[1])} <span class=note>({number(found[0])} – {number(found[2])})</span>"


def table(head, rows, kind=""):
    """Cells are HTML, heads are text."""
    lines = ["<tr>" + "".join(f"<th>{html.escape(each)}</th>" for each in head) + "</tr>"] if head else []
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return f"<table{kind}>\n" + "\n".join(lines) + "\n</table>"


def facts(reports):
    """Where and of what the figures are. A fact that is not the same in all reports has all its values."""
    def all_of(values):
        return html.escape(" · ".join(dict.fromkeys(str(value) for value in values if str(value) != "")))

    of = [report.json for report in reports]
    dates, first = sorted(each["date"] for each in of), min(of, key=lambda each: each["date"])["machine"]
    rows = [("commit", all_of(each["commit"] for each in of)),
            ("measured", html.escape(dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}")),
            ("device", all_of(f"CPU device ({each['device']['name']}); these are not a GPU's figures" if each["device"]["kind"] == "cpu" else each["device"]["name"] for each in of)),
            ("processor", all_of(f"{each['machine']['cpu_model']}, {each['machine']['cores']} cores" for each in of)),
            ("system", all_of(each["machine"]["kernel"] for each in of)),
            ("compiler", all_of(each["machine"]["compiler"] for each in of)),
            ("answering side", all_of(each["server"] for each in of) or "in the same process"),
            ("load before", f"{first['load_before']:.2f}")]
    text = "<table class=facts>\n" + "\n".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows) + "\n</table>"
    if first["load_before"] >= first["cores"] / 2:
        text += "\n<p class=warning>The machine was busy before: on an idle one the figures are better, and steadier.</p>"
    return text


def summary(reports):
    rows = []
    for report in reports:
        key, unit, scale = report.figures[0]
        for row in report.outer_rows():
            medians = row["medians"]
            rows.append((html.escape(f"{report.title()}, {report.label(row)}"), f"{number(medians['gpusock'][key] * scale)} {unit}",
                         f"{number(medians[report.rival][key] * scale)} {unit} <span class=note>{html.escape(report.rival)}</span>",
                         quartiles(report.ratios(row)), "less" if report.kind in LESS_IS_BETTER else "more"))
    return table(("", "gpusock", "rival", "ratio", "better is"), rows)


def figures_of(report):
    counts = [key for key in ("sockets", "in_use") if key in report.rows[0]]
    head = ["bytes"] + [key.replace("_", " ") for key in counts] + (["calls by"] if report.several_groups else [])
    head += [f"{name} {unit}" for name, _ in report.contestants for _, unit, _ in report.figures] + [f"ratio to {report.rival}"]
    rows = []
    for row in report.rows:
        cells = [f"{row['bytes']:,}"] + [f"{row[key]:,}" for key in counts] + ([html.escape(row["group"])] if report.several_groups else [])
        cells += [number(row["medians"][name][key] * scale) for name, _ in report.contestants for key, _, scale in report.figures]
        rows.append((*cells, quartiles(report.ratios(row))))
    return table(head, rows)


def stroke(index):
    """Dashes and colour of a line."""
    return f"lw 2 dt {DASHES[index % len(DASHES)]} lc rgb '{COLOURS[index % len(COLOURS)]}'"


def style(index):
    """The same, and its mark."""
    return f"{stroke(index)} pt {POINTS[index % len(POINTS)]} ps 0.6"


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def draw(file, panels, titles, script):
    """Draws a picture, and returns it as a part of a page: its names are its own, as all pictures of a page share one space of them. `titles`: of its lines, above each panel."""
    rows = (len(titles) + 1) // 2 if max(map(len, titles)) < 16 else len(titles)
    head = (f"set terminal svg size {460 * panels},{310 + 18 * rows} dynamic background rgb 'white' font ',13'\nset output {quoted(str(file))}\n"
            f"set encoding utf8\nset termoption noenhanced\nset grid\nset style data lines\nset tmargin {1.4 * rows + 1}\n"
            f"set key outside top center vertical maxrows {rows} font ',11' samplen 3\nset multiplot layout 1,{panels}\n")
    subprocess.run(["gnuplot", "-"], input=head + script + "unset multiplot\n", text=True, check=True)
    svg = file.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"""\bid=(["'])([^"']+)\1""", rf'id="{file.stem}-\2"', svg)
    svg = re.sub(r"""href=(["'])#([^"']+)\1""", rf'href="#{file.stem}-\2"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{file.stem}-\1)", svg)


def block(name, points):
    return f"${name} << END\n" + "\n".join(" ".join(map(str, point)) for point in points) + "\nEND\n"


def by_octaves(histogram):
    """The samples of a histogram by bins of 1/BINS octave: by the bin's number, how many. An interval that lies in two bins is shared out."""
    bins = {}
    for first, samples in histogram:
        start = max(first, 1)
        width = 1 << max(start.bit_length() - 6, 0)  # as interval_of() in microbench/statistics.cpp
        low, high = BINS * math.log2(start), BINS * math.log2(start + width)
        for at in range(math.floor(low), math.ceil(high)):
            bins[at] = bins.get(at, 0) + samples * (min(high, at + 1) - max(low, at)) / (high - low)
    return bins


def time_at(histogram, share):
    """The time, ns, that this share of the samples does not exceed, but for the width of an interval."""
    wanted, total = share * sum(samples for _, samples in histogram), 0
    for first, samples in histogram:
        total += samples
        if total >= wanted:
            return first
    return histogram[-1][0]


def distributions(report, folder):
    """Histogram and distribution function of the times of the first size and number of sockets, for each group and rival."""
    lines, first = {}, report.rows[0]
    for row in report.rows:
        if (row["bytes"], row.get("sockets")) != (first["bytes"], first.get("sockets")) or "histograms" not in row:
            continue
        for name, _ in report.contestants:
            if name != "gpusock" and name in lines:
                continue  # the rival's calls are by no group: its first rounds
            if row["histograms"][name]:
                lines[report.lines(row, name)[0]] = row["histograms"][name]
    if not lines:
        return ""
    # A sample in a thousand may be a thousand times as long as the others: the picture ends before it.
    low = min(time_at(line, 0.001) for line in lines.values()) / 1000 / 1.2
    high = max(time_at(line, 0.995) for line in lines.values()) / 1000 * 1.3
    script = f"set logscale x\nset xrange [{max(low, 1e-3)}:{high}]\nset xlabel 'µs'\nset yrange [0:*]\n"
    for index, line in enumerate(lines.values()):
        total, bins = sum(samples for _, samples in line), by_octaves(line)
        steps = [(2 ** ((at + 0.5) / BINS) / 1000, bins.get(at, 0) / total) for at in range(min(bins) - 1, max(bins) + 2)]
        script += block(f"histogram{index}", steps)
        done, points = 0, []
        for from_ns, samples in line:
            points.append((max(from_ns, 1) / 1000, done / total))
            done += samples
        script += block(f"below{index}", points + [(line[-1][0] * 1.04 / 1000, 1)])

    def plot(data):
        return "plot " + ", ".join(f"${data}{index} using 1:2 with {'histeps' if data == 'histogram' else 'lines'} {stroke(index)} title {quoted(title)}" for index, title in enumerate(lines))

    script += f"set ylabel 'share of the samples in 1/{BINS} octave'\n" + plot("histogram") + "\n"
    script += "set yrange [0:1]\nset ylabel 'share of the samples below'\n" + plot("below") + "\n"
    drawn = draw(folder / f"{report.name}-times.svg", 2, lines, script)
    what = report.label(first).partition(", calls by")[0]
    return f"<p>Times of {what}, all rounds: histogram, and distribution function.</p>\n{drawn}\n"


def over(report, x, folder):
    """The first figure over the size or the number of sockets, and its ratio to the rival's, with the quartiles of the rounds. Where both differ, the other one is that of the first row."""
    other = "sockets" if x == "bytes" else "bytes"
    rows = [row for row in report.rows if row.get(other) == report.rows[0].get(other)]
    if len({row.get(x) for row in rows}) < 2:
        return ""
    key, unit, scale = report.figures[0]
    lines, ratios = {}, {}
    for row in rows:
        for name, _ in report.contestants:
            if name != "gpusock" and row["group"] != report.rows[0]["group"]:
                continue  # the rival's calls are by no group
            for title in report.lines(row, name):
                lines.setdefault(title, []).append((row[x], row["medians"][name][key] * scale))
        found = report.ratios(row)
        for title in report.lines(row, "gpusock") if found else []:
            ratios.setdefault(title, []).append((row[x], found[1], found[0], found[2]))
    script = "set logscale x 2\nset xtics rotate by -30\n" + ("set xlabel 'bytes of a message'\nset format x '%.0b %B'\n" if x == "bytes" else "set xlabel 'sockets'\n")
    for kind, data in (("line", lines), ("ratio", ratios)):
        for index, points in enumerate(data.values()):
            script += block(f"{kind}{index}", points)
    script += (f"set ylabel '{unit}'\n" + ("set logscale y\n" if report.kind in LESS_IS_BETTER else "set yrange [0:*]\n") + "plot "
               + ", ".join(f"$line{index} using 1:2 with linespoints {style(index)} title {quoted(title)}" for index, title in enumerate(lines)) + "\n")
    if ratios:
        better = "less" if report.kind in LESS_IS_BETTER else "more"
        script += (f"set ylabel {quoted(f'{unit}, gpusock / {report.rival} ({better} is better)')}\nset logscale y\nset yrange [*:*]\n"
                   "plot 1 with lines lw 1 lc rgb '#8a8a8a' notitle, "
                   + ", ".join(f"$ratio{index} using 1:2:3:4 with yerrorlines {style(index)} title {quoted(title)}" for index, title in enumerate(ratios)) + "\n")
    what, name = ("the size of a message", "sizes") if x == "bytes" else ("the number of sockets", "sockets")
    drawn = draw(folder / f"{report.name}-{name}.svg", 2, lines, script)
    return f"<p>Over {what}: medians of the rounds, and the ratio to {html.escape(report.rival)} with its quartiles.</p>\n{drawn}\n"


def section(report, folder, draws):
    what = "".join(f"<li><b>{html.escape(name)}</b>: {html.escape(text)}</li>" for name, text in report.contestants)
    options = report.options
    rings = f"Rings have {options['ring_bytes']:,} bytes. " if options["ring_bytes"] else ""
    until = f"{options['duration_s']} s" if options["duration_s"] else f"{options['iterations']} messages of each socket"
    pictures = distributions(report, folder) + over(report, "bytes", folder) + over(report, "sockets", folder) if draws else ""
    return (f"<h2>{html.escape(report.title())}</h2>\n<ul>{what}</ul>\n<p class=note>{rings}{options['repeat']} rounds of {until} each, in turn. Figures are medians over the rounds; a ratio "
            f"is gpusock / {html.escape(report.rival)}, the median over the rounds, with its quartiles.</p>\n{pictures}{figures_of(report)}\n")


def page(reports, folder, draws):
    body = [f"<h1>gpusock-bench</h1>\n{facts(reports)}\n"]
    if not draws:
        body.append(f"<p class=warning>{NO_GNUPLOT[0].upper()}{html.escape(NO_GNUPLOT[1:])}.</p>\n")
    body.append(f"<h2>All runs</h2>\n<p>Each beside a raw program that does the same work without gpusock, in the same run, round by round. Of several sizes or numbers of sockets, the first and the last one.</p>\n{summary(reports)}\n")
    body += [section(report, folder, draws) for report in reports]
    return f"<!DOCTYPE html>\n<html lang=en>\n<head><meta charset=utf-8><title>gpusock-bench</title>\n<style>{STYLE}</style></head>\n<body>\n{''.join(body)}</body>\n</html>\n"


def main(arguments):
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    folder, reports = pathlib.Path(arguments[0]), []
    for name in arguments[1:]:
        try:
            reports.append(Report(pathlib.Path(name)))
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            print(f"bench_page: {name} is not what gpusock-bench --json writes ({error!r}): measure anew, with this version", file=sys.stderr)
            return 1
    draws = shutil.which("gnuplot") is not None
    if not draws:
        print(f"bench_page: {NO_GNUPLOT}", file=sys.stderr)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.html").write_text(page(reports, folder, draws), encoding="utf-8")
    except OSError as error:
        print(f"bench_page: cannot write {folder}/index.html: {error.strerror}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"bench_page: gnuplot ended with status {error.returncode}: its message is above", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
