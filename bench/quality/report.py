"""The table and the plot of what run.py measured: cells[engine, text, context] are lists of rows,
the first of the engine's own unquantized cache. The same rows give the same bytes.
"""

import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402  (after the choice of backend)
import matplotlib.ticker as ticker  # noqa: E402

BEGIN = "<!-- from here on written by bench/quality/run.py -->"
END = "<!-- up to here -->"
ENGINES = {"pagekv": "pagekv", "llama": "llama.cpp"}
TEXT_NAMES = {"wikitext2": "WikiText-2", "austen": "Austen"}
COLORS = {"pagekv": "#1f6fb2", "llama": "#c2521b"}
MARKERS = {"wikitext2": "o", "austen": "D"}
LABEL_GAPS = (6, 14, 24, 36, 50)  # in points, from a marker to its label
X_TICKS = (2, 3, 4, 5, 6, 8, 12, 16)


def distinct(values):
    return list(dict.fromkeys(values))


# --- table ----------------------------------------------------------------------------------------


def with_error(value, error, unit=1.0):
    """Both with two digits of the error."""
    value, error = value / unit, error / unit
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 2
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def label(engine, row):
    return f"{ENGINES[engine]} `{row['kv']}`"


def overview(cells):
    """Mean KL of every format, those with more bits first, in every cell."""
    contexts = distinct(context for _, _, context in cells)
    texts = distinct(text for _, text, _ in cells)
    head = ["cache", "bits"] + [f"{TEXT_NAMES[text]}, {context:,}" for context in contexts
                                for text in texts]
    lines = []
    for engine in ENGINES:
        count = len(cells[engine, texts[0], contexts[0]])
        for i in range(1, count):
            rows = [cells[engine, text, context][i] for context in contexts for text in texts]
            lines.append((-rows[0]["bits"], [label(engine, rows[0]), f"{rows[0]['bits']:.4g}"] + [
                with_error(row["mean_kl"], row["mean_kl_err"], 1e-3) for row in rows]))
    lines.sort(key=lambda line: line[0])
    return table(head, [line for _, line in lines])


def details(cells, context):
    head = ["text", "cache", "bits", "perplexity", "KL: median", "99.9 %", "largest", "same top",
            "RMS Δp"]
    lines = []
    for text in distinct(text for _, text, _ in cells):
        found = [(i == 0, -row["bits"], engine, row) for engine in ENGINES
                 for i, row in enumerate(cells[engine, text, context])]
        for reference, _, engine, row in sorted(found, key=lambda each: (not each[0], each[1])):
            begin = [TEXT_NAMES[text], label(engine, row), f"{row['bits']:.4g}"]
            if reference:
                lines.append([*begin, with_error(row["ppl"], row["ppl_err"])] + 5 * [""])
                continue
            change = row["ppl"] / cells[engine, text, context][0]["ppl"] - 1
            kl = [f"{1e3 * row[name]:.3g}" for name in ("median_kl", "p999_kl", "max_kl")]
            lines.append([*begin, f"{100 * change:+.3f} %", *kl, f"{100 * row['same_top']:.2f} %",
                          f"{row['rms_dp']:.3g} %"])
    return table(head, lines)


def hours(cells, engine):
    """What the cells took. All rows of one call have the same seconds."""
    return sum(sum({row["seconds"] for row in rows})
               for key, rows in cells.items() if key[0] == engine) / 3600


def control_table(control):
    """Rows of llama.cpp's own loop and of the one by tiles, on the same few chunks."""
    lines = [[f"`{row['kv']}`"] + [with_error(each["mean_kl"], each["mean_kl_err"], 1e-3)
                                   for each in (row, tiled)]
             for row, tiled in list(zip(*control))[1:]]
    return table(["cache", "row by row", "by tiles"], lines)


def generated(cells, control):
    contexts = distinct(context for _, _, context in cells)
    scored = [cells[engine, text, context][0]["scored"] for engine, text, context in cells]
    peer = next(rows[0]["engine"] for key, rows in cells.items() if key[0] == "llama")
    rotated = all(row["rotation"] == [1, 1] for key, rows in cells.items() if key[0] == "llama"
                  for row in rows[1:])
    parts = ["![Mean KL over bits per element, one panel per context](quality.svg)\n",
             f"{peer}{', which rotates quantized keys and values by itself' if rotated else ''}. "
             f"At least {min(scored):,} scored tokens a cell. The cells took "
             f"{hours(cells, 'pagekv'):.1f} h (pagekv) and {hours(cells, 'llama'):.1f} h "
             "(llama.cpp) in all.\n",
             "### Mean KL\n", "In 10⁻³ nats, ± one standard error, by text and context:\n",
             overview(cells)]
    for context in contexts:
        parts += [f"### Context of {context:,} tokens\n", "KL in 10⁻³ nats:\n",
                  details(cells, context)]
    first = control[0][0]
    parts += ["### llama.cpp's two loops\n",
              f"Mean KL, {TEXT_NAMES['wikitext2']}, {first['chunks']} chunks of "
              f"{first['context']:,}, in 10⁻³ nats:\n", control_table(control)]
    return "\n".join(parts)


def write_table(path, cells, control):
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n\n{generated(cells, control)}\n{END}{after}", encoding="utf-8")


# --- plot -----------------------------------------------------------------------------------------


def overlaps(box, others):
    return any(box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
               for other in others)


def candidates(x, y, width, height, pixels):
    """Boxes for a label, best first: beside, above, below its point, ever farther away."""
    for gap in (pixels * points for points in LABEL_GAPS):
        slanted = 0.7 * gap
        for left, bottom in ((x + gap, y - height / 2), (x - gap - width, y - height / 2),
                             (x - width / 2, y + gap), (x - width / 2, y - gap - height),
                             (x + slanted, y + slanted), (x + slanted, y - slanted - height),
                             (x - slanted - width, y + slanted),
                             (x - slanted - width, y - slanted - height)):
            yield left, bottom, left + width, bottom + height


def place_labels(axes, labels, obstacles):
    """labels: (text, x, y, color), in data; obstacles: boxes in pixels that stay free."""
    renderer = axes.figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    pixels = axes.figure.dpi / 72
    to_data = axes.transData.inverted()
    for text, x, y, color in labels:
        note = axes.text(x, y, text, color=color, fontsize=9, verticalalignment="bottom")
        extent = note.get_window_extent(renderer)
        at = axes.transData.transform((x, y))
        boxes = list(candidates(*at, extent.width, extent.height, pixels))
        inside = [box for box in boxes if box[0] > frame.x0 and box[2] < frame.x1
                  and box[1] > frame.y0 and box[3] < frame.y1]
        box = next((box for box in inside if not overlaps(box, obstacles)), boxes[0])
        obstacles.append(box)
        note.set_position(to_data.transform(box[:2]))
        nearest = (min(max(at[0], box[0]), box[2]), min(max(at[1], box[1]), box[3]))
        if math.dist(at, nearest) > 10 * pixels:
            axes.plot(*zip((x, y), to_data.transform(nearest)), color=color, linewidth=0.5,
                      zorder=1)


def points(cells, context):
    """(engine, text, row) of every format; a KL of 0 has no place on a logarithmic axis."""
    return [(engine, text, row) for (engine, text, its), rows in cells.items() if its == context
            for row in rows[1:] if row["mean_kl"] > 0]


def face(text, color):
    return color if text == "wikitext2" else "white"


def draw_points(axes, cells, context):
    shown = points(cells, context)
    for engine, text, row in shown:
        below = min(row["mean_kl_err"], 0.9 * row["mean_kl"])
        axes.errorbar(row["bits"], row["mean_kl"], yerr=[[below], [row["mean_kl_err"]]],
                      fmt=MARKERS[text], color=COLORS[engine], markersize=5.5, capsize=2.5,
                      linewidth=1, markerfacecolor=face(text, COLORS[engine]))
    for text in distinct(text for _, text, _ in shown):
        line = sorted((row["bits"], row["mean_kl"]) for engine, own, row in shown
                      if engine == "llama" and own == text)
        axes.plot(*zip(*line), color=COLORS["llama"], linewidth=0.8, alpha=0.4, zorder=1)
    return shown


def draw_panel(axes, cells, context):
    shown = draw_points(axes, cells, context)
    axes.set_title(f"context of {context:,} tokens", loc="left", fontsize=10)
    axes.set_ylabel("mean KL, nats")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return shown


def along(line):
    """The ends of a line of pixels, and places between them."""
    for (x, y), (next_x, next_y) in zip(line, line[1:]):
        for i in range(21):
            yield x + (next_x - x) * i / 20, y + (next_y - y) * i / 20


def boxes_of(axes, shown):
    """What labels may not cover, as boxes in pixels: the markers, and the lines between some."""
    pixels = axes.figure.dpi / 72
    markers = [axes.transData.transform((row["bits"], row["mean_kl"])) for _, _, row in shown]
    lines = [place for line in axes.lines
             for place in along([axes.transData.transform(point) for point in line.get_xydata()])]
    return [(x - size, y - size, x + size, y + size)
            for places, size in ((markers, 5 * pixels), (lines, pixels)) for x, y in places]


def label_panel(axes, shown):
    obstacles = boxes_of(axes, shown)
    named = {}
    for engine, _, row in shown:
        named.setdefault((engine, row["kv"], row["bits"]), []).append(math.log(row["mean_kl"]))
    place_labels(axes, [(kv, bits, math.exp(sum(logs) / len(logs)), COLORS[engine])
                        for (engine, kv, bits), logs in named.items()], obstacles)


def legend(axes, cells):
    texts = distinct(text for _, text, _ in cells)
    handles = [axes.plot([], [], "s", color=COLORS[engine], label=name)[0]
               for engine, name in ENGINES.items()]
    handles += [axes.plot([], [], MARKERS[text], color="#444444", label=TEXT_NAMES[text],
                          markerfacecolor=face(text, "#444444"))[0]
                for text in texts]
    axes.legend(handles=handles, loc="upper right", fontsize=9, frameon=False, ncols=2)


def draw(path, cells):
    contexts = distinct(context for _, _, context in cells)
    with pyplot.rc_context({"svg.hashsalt": "pagekv", "svg.fonttype": "path", "font.size": 9}):
        figure, panels = pyplot.subplots(len(contexts), figsize=(9, 3.5 * len(contexts)),
                                         sharex=True, sharey=True, squeeze=False,
                                         layout="constrained")
        panels = panels[:, 0]
        shown = [draw_panel(axes, cells, context) for axes, context in zip(panels, contexts)]
        panels[0].set_yscale("log")
        panels[0].set_xscale("log", base=2)
        every = [row["bits"] for panel in shown for _, _, row in panel]
        panels[0].set_xlim(min(every) / 1.15, max(every) * 1.15)
        panels[-1].xaxis.set_major_locator(ticker.FixedLocator(X_TICKS))
        panels[-1].xaxis.set_minor_locator(ticker.NullLocator())
        panels[-1].xaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
        panels[-1].set_xlabel("bits per element, scales and biases counted")
        legend(panels[0], cells)
        figure.canvas.draw()  # places the panels, on which the labels' places depend
        figure.set_layout_engine("none")
        for axes, its in zip(panels, shown):
            label_panel(axes, its)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
