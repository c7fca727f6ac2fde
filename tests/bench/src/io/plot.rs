//! Charts of results.

use anyhow::Context;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size of a chart, pixels.
const SIZE: (u32, u32) = (900, 420);
/// The part of a group's width that its bars fill.
const FILLED: f64 = 0.8;

/// A bar of a chart.
#[derive(Debug, Clone, Copy)]
pub struct Bar<'a> {
    /// Bars of the same group stand together.
    pub group: &'a str,
    /// Bars of the same name have the same colour.
    pub name: &'a str,
    /// The height of the bar; the line at 1 is the baseline of the comparison.
    pub height: f64,
}

/// Returns the distinct values of a property of bars, in order of first appearance.
fn different<'a>(bars: &[Bar<'a>], of: impl Fn(&Bar<'a>) -> &'a str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for value in bars.iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Draws bars as SVG.
///
/// # Errors
/// None in practice: the chart is drawn into memory.
pub fn draw(title: &str, bars: &[Bar<'_>]) -> anyhow::Result<String> {
    let groups = different(bars, |bar| bar.group);
    let names = different(bars, |bar| bar.name);
    let top = bars.iter().fold(1.0, |top: f64, bar| top.max(bar.height)) * 1.15;
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption(title, ("sans-serif", 18))
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..groups.len().max(1) as f64, 0.0..top)?;
    let mesh = &mut chart.configure_mesh();
    mesh.disable_x_mesh().disable_x_axis().draw()?;
    let width = FILLED / names.len().max(1) as f64;
    for (n, &name) in names.iter().enumerate() {
        let colour = Palette99::pick(n).filled();
        let place = |bar: &Bar<'_>| groups.iter().position(|group| *group == bar.group);
        let rectangles = bars
            .iter()
            .filter(|bar| bar.name == name)
            .filter_map(|bar| {
                let left = place(bar)? as f64 + (1.0 - FILLED) / 2.0 + n as f64 * width;
                let corners = [(left, 0.0), (left + width, bar.height)];
                Some(Rectangle::new(corners, colour))
            });
        let series = chart.draw_series(rectangles)?;
        series
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour));
    }
    let label = ("sans-serif", 14).into_text_style(&area);
    let label = label.pos(Pos::new(HPos::Center, VPos::Top));
    for (n, &group) in groups.iter().enumerate() {
        let at = (n as f64 + 0.5, top);
        let text = Text::new(group, at, label.clone());
        chart.plotting_area().draw(&text)?;
    }
    let line = [(0.0, 1.0), (groups.len() as f64, 1.0)];
    chart.draw_series(LineSeries::new(line, &BLACK))?;
    let legend = &mut chart.configure_series_labels();
    legend
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present().context("the chart")?;
    drop((chart, area));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bars_are_drawn() {
        let bar = |group, name, height| Bar {
            group,
            name,
            height,
        };
        let bars = [
            bar("first", "red", 0.5),
            bar("first", "blue", 3.0),
            bar("second", "red", 1.0),
        ];
        let rectangles = |bars: &[Bar<'_>]| {
            let text = draw("title", bars).unwrap();
            text.matches("<rect").count()
        };
        assert_eq!(rectangles(&bars) - rectangles(&bars[..2]), 1);
        let text = draw("title", &bars).unwrap();
        for word in ["first", "second", "red", "blue", "title"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(draw("nothing", &[]).is_ok());
    }
}
