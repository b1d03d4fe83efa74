"""Charts of scores by group: what is drawn where, and how a number can be read on its color."""

import io
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from bertlab_pages.charts import (
    HeatMap,
    Interval,
    group_chart,
    heat_maps,
    word_curves,
    word_panels,
)
from bertlab_pages.pictures import Picture, file_names, inline_svg, svg_of
from bertlab_pages.plot_axes import SETTINGS
from bertlab_pages.word_curves import WordCurve, read_word_curves

NAN = float("nan")


@pytest.fixture(autouse=True)
def settings():
    with mpl.rc_context(SETTINGS):
        yield


def percent(value):
    return f"{100 * value:.1f}"


def contrast(one, other):
    """Return the contrast ratio of two colors as WCAG 2 has it."""

    def luminance(color):
        rgb = np.array(mpl.colors.to_rgb(color))
        linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def cells_of(axes):
    """Return the text of each cell and its color, by column and row."""
    return {
        (int(text.xy[0]), int(text.xy[1])): (text.get_text(), text.get_color())
        for text in axes.texts
    }


def test_a_heat_map_has_its_numbers_in_place_and_nothing_where_there_is_none():
    values = np.array([[0.5, 0.625, NAN], [0.25, 1.0, 0.75]])
    figure = heat_maps([HeatMap("acc", ["0", "1"], ["a", "b", "c"], values, percent)])
    (axes,) = figure.axes
    texts = {place: text for place, (text, _) in cells_of(axes).items()}
    assert texts == {
        (0, 0): "50.0",
        (1, 0): "62.5",
        (0, 1): "25.0",
        (1, 1): "100.0",
        (2, 1): "75.0",
    }
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]
    bottom, top = axes.get_ylim()
    assert (bottom, top) == (2, 0)  # the first row is at the top
    figure.draw_without_rendering()
    colors = axes.collections[0].get_facecolors().reshape(2, 3, 4)
    assert tuple(colors[1, 0]) == mpl.colormaps["viridis"](0.0)
    assert tuple(colors[1, 1]) == mpl.colormaps["viridis"](1.0)
    assert colors[0, 2, 3] == 0  # transparent


@pytest.mark.first_slow
@pytest.mark.parametrize("better", [0, 1, -1])
def test_numbers_can_be_read_on_every_color(better):
    values = np.linspace(-1, 1, 200).reshape(5, 40)
    names = list(map(str, range(40)))
    figure = heat_maps([HeatMap("", names[:5], names, values, percent, better)])
    (axes,) = figure.axes
    figure.draw_without_rendering()
    colors = axes.collections[0].get_facecolors().reshape(5, 40, 4)
    cells = cells_of(axes)
    assert len(cells) == 200
    for (column, row), (_, ink) in cells.items():
        assert contrast(ink, colors[row, column]) > 4.0


def test_differences_are_white_at_zero_and_blue_where_better():
    for better in (1, -1):
        values = np.array([[0.0, 0.1 * better, -0.2 * better]])
        figure = heat_maps([HeatMap("", ["a"], ["x", "y", "z"], values, percent, better)])
        figure.draw_without_rendering()
        zero, good, bad = figure.axes[0].collections[0].get_facecolors()[:, :3]
        assert zero.min() > 0.95
        assert good[2] > good[0] + 0.2
        assert bad[0] > bad[2] + 0.2


@pytest.mark.slow
def test_heat_maps_of_one_value_or_none_are_drawn():
    for values in (np.array([[0.5]]), np.array([[NAN]]), np.zeros((1, 1))):
        for better in (0, 1):
            svg_of(heat_maps([HeatMap("", ["a"], ["b"], values, percent, better)]))


def test_the_names_of_columns_stand_once_above_several_maps():
    values = np.array([[0.5, 0.6]])
    maps = [HeatMap(title, ["a"], ["x", "y"], values, percent) for title in ("one", "two")]
    first, second = heat_maps(maps).axes
    assert [label.get_text() for label in first.get_xticklabels()] == ["x", "y"]
    assert not second.get_xticklabels()
    assert (first.get_title("left"), second.get_title("left")) == ("one", "two")


def test_a_heat_map_is_paths_and_text():
    figure = heat_maps([HeatMap("", ["<b>"], ["&", "$x$"], np.array([[0.5, 0.6]]), percent)])
    svg = svg_of(figure)
    root = ElementTree.parse(io.StringIO(svg)).getroot()
    tags = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert not tags & {"image", "script"}
    assert {"<b>", "&", "$x$", "50.0"} <= {(each.text or "").strip() for each in root.iter()}
    inlined = inline_svg(Picture("one", "a caption", svg))
    assert "#24292f" not in inlined  # the page's own ink


def test_the_chart_of_groups_has_means_intervals_and_chance():
    groups = {"b": Interval(0.5, 0.4, 0.6), "a": Interval(0.75, 0.5, 0.875)}
    (axes,) = group_chart(groups, "accuracy", share=True, chance=0.5).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "a"]
    drawn = [each.get_segments()[0].tolist() for each in axes.collections]
    assert drawn == [[[0.4, 0], [0.6, 0]], [[0.5, 1], [0.875, 1]]]
    *points, chance = axes.lines
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in points] == [(0.5, 0), (0.75, 1)]
    assert list(chance.get_xdata()) == [0.5, 0.5]
    (axes,) = group_chart(groups, "spearman", share=False, chance=None).axes
    assert len(axes.lines) == 2
    assert axes.get_ylim() == (1.5, -0.5)  # the first at the top


def test_curves_have_a_panel_for_each_group_on_the_same_axes():
    one = WordCurve([10, 100], [0.5, 0.7], [0.4, 0.6], [0.6, 0.8])
    two = WordCurve([10], [0.3], [NAN], [NAN])
    figure = word_curves({None: {"x": one, "y": two}, "g": {"y": one}}, ["x", "y"], True, 0.5)
    every, group = figure.axes
    assert (every.get_title(), group.get_title()) == ("all rows", "g")
    assert every.get_xscale() == "log"
    assert every.get_ylim() == group.get_ylim()
    x, y, chance = every.lines
    assert (list(x.get_xdata()), list(x.get_ydata())) == ([10, 100], [0.5, 0.7])
    assert list(y.get_ydata()) == [0.3]
    assert list(chance.get_ydata()) == [0.5, 0.5]
    band = every.collections[0].get_paths()[0].vertices
    assert {tuple(each) for each in band.tolist()} == {(10, 0.4), (10, 0.6), (100, 0.6), (100, 0.8)}
    # a variant looks the same in all panels
    assert group.lines[0].get_color() == y.get_color() != x.get_color()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["x", "y"]
    assert not word_curves({None: {"x": one}}, ["x"], True, None).legends
    assert word_curves({None: {"y": two}}, ["y"], True, None) is None


def test_panels_are_all_rows_and_the_groups_of_a_kind_that_has_few():
    many = {str(number): 0 for number in range(41)}
    kinds = {"all": {"": 7}, "field": {"b": 1, "a": 2}, "paradigm": many, "one": {"x": 3}}
    assert word_panels(kinds) == {", by field": {None: 7, "b": 1, "a": 2}}
    assert list(word_panels(kinds)[", by field"]) == [None, "b", "a"]
    assert word_panels({"all": {"": 7}, "paradigm": many}) == {"": {None: 7}}
    assert word_panels({}) == {}


def test_curves_are_read_by_kind_and_group(tmp_path):
    file = tmp_path / "x.words.csv"
    file.write_text(
        "words,kind,group,rows,mean,low,high\n"
        "10000000,all,,4,0.75,0.5,0.875\n"
        "1000000,all,,4,0.5,0.25,0.75\n"
        '1000000,field,"a, ""b""",1,1.0,,\n',
        "utf-8",
    )
    found = read_word_curves(file)
    assert found["all"] == {
        "": WordCurve([1_000_000, 10_000_000], [0.5, 0.75], [0.25, 0.5], [0.75, 0.875])
    }
    ((group, curve),) = found["field"].items()
    assert group == 'a, "b"'
    assert (curve.words, curve.values) == ([1_000_000], [1.0])
    assert np.isnan([*curve.low, *curve.high]).all()


def test_file_names_are_plain_and_differ():
    names = {
        "heat_map a/../b c": "heat_map_a_b_c",
        "heat_map a-b": "heat_map_a-b",
        "heat_map A b c": "heat_map_A_b_c_2",  # some disks take a and A for the same
        "汉": "_",
        "../..": "__2",
    }
    assert file_names(list(names)) == list(names.values())
