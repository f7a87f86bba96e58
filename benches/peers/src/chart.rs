//! A chart of a run, as SVG: a row for each shape, and in it a dot for each peer, where its time is in times of perkey's.

use std::path::Path;

use plotters::backend::SVGBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, Drawable, PathElement, PointCollection, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle};

use crate::contestants::names;
use crate::records::{Record, Run};

/// Whoever has a mark: how it looks, in the legend's order. Colours that people with any kind of sight tell apart, by Masataka
/// Okabe and Kei Ito; a crate is a full dot, what is written by hand an open one.
const MARKS: [(&str, RGBColor, Mark); 11] = [
    (names::LOCKMAP, RGBColor(0xD5, 0x5E, 0x00), Mark::Full),
    (names::LOCKABLE, RGBColor(0x00, 0x72, 0xB2), Mark::Full),
    (names::KEYED_LOCK, RGBColor(0x00, 0x9E, 0x73), Mark::Full),
    (names::KEY_MUTEX, RGBColor(0xCC, 0x79, 0xA7), Mark::Full),
    (names::PERKEY_FIFO, INK, Mark::Full),
    (names::COUNTED, RGBColor(0xE6, 0x9F, 0x00), Mark::Open),
    (names::LEAKING, RGBColor(0x56, 0xB4, 0xE9), Mark::Open),
    (names::TEXTBOOK, RGBColor(0x80, 0x80, 0x00), Mark::Open),
    (names::FLOOR_ONE_MAP, GREY, Mark::Cross),
    (names::FLOOR_SHARDS, GREY, Mark::Cross),
    (names::FLOOR_MUTEX, GREY, Mark::Cross),
];

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Full,
    Open,
    Cross,
}

const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
const STRIPE: RGBColor = RGBColor(0xF3, 0xF4, 0xF6);
const RULE: RGBColor = RGBColor(0xD0, 0xD4, 0xD9);
const GREY: RGBColor = RGBColor(0x6B, 0x72, 0x80);
const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);

/// In pixels, as everything here.
const WIDTH: i32 = 960;
const LEFT: i32 = 330;
const RIGHT: i32 = WIDTH - 30;
const LEGEND_TOP: i32 = 94;
const LEGEND_LINE: i32 = 20;
const LEGEND_COLUMNS: usize = 5;
const LEGEND_STEP: i32 = 180;
const TOP: i32 = 190;
const ROW: i32 = 30;
/// Below the last row: the axis.
const BOTTOM: i32 = 50;
const DOT: i32 = 4;
/// What plotters divides the sizes of fonts by.
const FONT_UNIT: f64 = 1.24;
/// How far apart two dots of a row are, so that none hides another.
const LANE: i32 = 3;

/// A shape with somebody to compare perkey with.
struct Row<'a> {
    title: &'a str,
    records: Vec<&'a Record>,
}

/// The chart. Fails if the run compares perkey with nobody.
pub(crate) fn svg(file: &Path, run: &Run) -> Result<String, String> {
    let rows = rows(run);
    if rows.is_empty() {
        return Err(format!("{}: nobody in it is compared with perkey", file.display()));
    }
    let mut out = String::new();
    let height = TOP + ROW * rows.len() as i32 + BOTTOM;
    let canvas = Canvas {
        area: SVGBackend::with_string(&mut out, (WIDTH as u32, height as u32)).into_drawing_area(),
        scale: Scale::of(&rows),
    };
    canvas.background(height);
    canvas.head(&run.notes);
    canvas.legend();
    for (number, row) in rows.iter().enumerate() {
        canvas.stripe(number, row.title);
    }
    canvas.axis(rows.len());
    for (number, row) in rows.iter().enumerate() {
        canvas.marks(number, row);
    }
    drop(canvas);
    Ok(out)
}

fn rows(run: &Run) -> Vec<Row<'_>> {
    let mut rows: Vec<(&str, Row<'_>)> = vec![];
    for record in &run.records {
        if mark(&record.contestant).is_none() || position(record).is_none() {
            continue;
        }
        match rows.iter_mut().find(|(shape, _)| *shape == record.shape) {
            Some((_, row)) => row.records.push(record),
            None => rows.push((&record.shape, Row { title: &record.title, records: vec![record] })),
        }
    }
    rows.retain(|(_, row)| row.records.iter().any(|record| names::PEERS.contains(&record.contestant.as_str())));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Where a record is on the axis; nowhere if the noise was greater than what was measured.
fn position(record: &Record) -> Option<f64> {
    record.ratio.filter(|&ratio| ratio > 0.0)
}

/// The lane, and the look.
fn mark(contestant: &str) -> Option<(i32, RGBColor, Mark)> {
    let lane = MARKS.iter().position(|(name, ..)| *name == contestant)?;
    let (_, colour, mark) = MARKS[lane];
    // All floors have the lane in the middle.
    let dots = MARKS.iter().filter(|(.., mark)| *mark != Mark::Cross).count();
    let lane = if mark == Mark::Cross { dots / 2 } else { lane };
    Some((lane as i32 * LANE - (dots as i32 - 1) * LANE / 2, colour, mark))
}

/// Times perkey's time, to pixels: each step of the same factor is as wide.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(rows: &[Row<'_>]) -> Self {
        let records = rows.iter().flat_map(|row| &row.records);
        let shown = records.flat_map(|record| [position(record), record.goal]).flatten();
        let (low, high) = shown.fold((0.5_f64, 10.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
        Self { low: low / 1.1, high: high * 1.1 }
    }

    fn x(self, ratio: f64) -> i32 {
        let part = (ratio / self.low).ln() / (self.high / self.low).ln();
        LEFT + (part * f64::from(RIGHT - LEFT)).round() as i32
    }

    /// 1, 2 and 5 of every power of ten.
    fn ticks(self) -> impl Iterator<Item = f64> {
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        powers
            .flat_map(|power| [1.0, 2.0, 5.0].map(|digit: f64| format!("{digit}e{power}").parse().expect("a number")))
            .filter(move |&tick: &f64| self.low <= tick && tick <= self.high)
    }
}

struct Canvas<'a> {
    area: plotters::drawing::DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    scale: Scale,
}

impl<'b> Canvas<'b> {
    fn background(&self, height: i32) {
        self.draw(&Rectangle::new([(0, 0), (WIDTH, height)], PAPER.filled()));
    }

    fn head(&self, notes: &[String]) {
        self.text("A lock and an unlock, in times of perkey's time", (16, 20), 20, INK, HPos::Left);
        // A load is of the moment; the rest of it can be had again.
        let notes = notes.iter().filter(|note| !note.starts_with("load "));
        for (line, note) in notes.take(3).enumerate() {
            self.text(note, (16, 42 + 16 * line as i32), 12, GREY, HPos::Left);
        }
    }

    fn legend(&self) {
        let place = |number: usize| {
            let (column, line) = (number % LEGEND_COLUMNS, number / LEGEND_COLUMNS);
            (24 + LEGEND_STEP * column as i32, LEGEND_TOP + 10 + LEGEND_LINE * line as i32)
        };
        let dots = MARKS.iter().filter(|(.., mark)| *mark != Mark::Cross);
        let mut number = 0;
        for (name, colour, mark) in dots {
            let (x, y) = place(number);
            self.mark(x, y, *colour, *mark);
            self.text(name, (x + 12, y), 13, INK, HPos::Left);
            number += 1;
        }
        let (x, y) = place(number);
        self.mark(x, y, GREY, Mark::Cross);
        self.text("floor: no lock per key", (x + 12, y), 13, INK, HPos::Left);
        let (x, y) = place(number + 1);
        self.goal(x, y, GREY);
        self.text("goal: its dot is not left of it", (x + 12, y), 13, INK, HPos::Left);
        let explained = "Full dots: crates, by their own calls. Open dots: written by hand over dashmap or std.";
        self.text(explained, (16, LEGEND_TOP + 16 + 2 * LEGEND_LINE), 12, GREY, HPos::Left);
    }

    fn stripe(&self, number: usize, title: &str) {
        let y = TOP + ROW * number as i32;
        if number.is_multiple_of(2) {
            self.draw(&Rectangle::new([(0, y), (WIDTH, y + ROW)], STRIPE.filled()));
        }
        self.text(title, (LEFT - 14, y + ROW / 2), 13, INK, HPos::Right);
    }

    fn axis(&self, rows: usize) {
        let bottom = TOP + ROW * rows as i32;
        for tick in self.scale.ticks() {
            let x = self.scale.x(tick);
            self.line([(x, TOP), (x, bottom)], RULE, 1);
            self.text(&format!("{tick} ×"), (x, bottom + 12), 12, GREY, HPos::Center);
        }
        let perkey = self.scale.x(1.0);
        self.line([(perkey, TOP), (perkey, bottom)], INK, 2);
        self.text("perkey", (perkey, TOP - 12), 14, INK, HPos::Center);
        self.text("slower →", (perkey + 36, TOP - 12), 12, GREY, HPos::Left);
        self.text("← faster", (perkey - 36, TOP - 12), 12, GREY, HPos::Right);
        self.text("time for each operation, in times of perkey's", (LEFT, bottom + 32), 12, GREY, HPos::Left);
    }

    fn marks(&self, number: usize, row: &Row<'_>) {
        let middle = TOP + ROW * number as i32 + ROW / 2;
        for record in &row.records {
            let Some((lane, colour, _)) = mark(&record.contestant) else { continue };
            if let Some(goal) = record.goal.filter(|&goal| goal > 0.0) {
                self.goal(self.scale.x(goal), middle + lane, colour);
            }
        }
        for record in &row.records {
            let (Some((lane, colour, mark)), Some(ratio)) = (mark(&record.contestant), position(record)) else {
                continue;
            };
            self.mark(self.scale.x(ratio), middle + lane, colour, mark);
        }
    }

    fn mark(&self, x: i32, y: i32, colour: RGBColor, mark: Mark) {
        match mark {
            Mark::Full => self.draw(&Circle::new((x, y), DOT, colour.filled())),
            Mark::Open => self.draw(&Circle::new((x, y), DOT, colour.stroke_width(2))),
            Mark::Cross => {
                self.line([(x - DOT, y - DOT), (x + DOT, y + DOT)], colour, 2);
                self.line([(x - DOT, y + DOT), (x + DOT, y - DOT)], colour, 2);
            }
        }
    }

    fn goal(&self, x: i32, y: i32, colour: RGBColor) {
        self.line([(x, y - 6), (x, y + 6)], colour, 3);
    }

    fn line(&self, ends: [(i32, i32); 2], colour: RGBColor, width: u32) {
        self.draw(&PathElement::new(ends, ShapeStyle { color: colour.to_rgba(), filled: false, stroke_width: width }));
    }

    /// Centred on its place's height.
    fn text(&self, text: &str, place: (i32, i32), size: u32, colour: RGBColor, horizontal: HPos) {
        let font = ("sans-serif", f64::from(size) * FONT_UNIT).into_font();
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(horizontal, VPos::Center));
        self.draw(&Text::new(text.to_owned(), place, style));
    }

    fn draw<E>(&self, element: &E)
    where
        for<'e> &'e E: PointCollection<'e, (i32, i32)>,
        E: Drawable<SVGBackend<'b>>,
    {
        self.area.draw(element).expect("text takes every element");
    }
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;
    use crate::records;

    const RUN: &str = "\
# 2 cores, <one> & \"another\"
shape,title,contestant,ratio_to_perkey,goal_ratio
u64,\"1 thread, fresh u64\",empty loop,-,-
u64,\"1 thread, fresh u64\",floor: one map,0.970,0.909
u64,\"1 thread, fresh u64\",perkey,1.000,-
u64,\"1 thread, fresh u64\",lockmap,1.700,1.300
u64,\"1 thread, fresh u64\",lockable,120.000,2.500
u64,\"1 thread, fresh u64\",textbook,-,-
calls,perkey's calls,perkey with_key,1.000,-
hot,8 threads,perkey fifo,30.000,-
hot,8 threads,keyed-lock,0.100,1.000
";

    fn drawn(text: &str) -> Result<String, String> {
        let file = Path::new("run.csv");
        svg(file, &records::parse(file, text.as_bytes()).unwrap())
    }

    fn count(document: &Document<'_>, tag: &str) -> usize {
        document.descendants().filter(|node| node.has_tag_name(tag)).count()
    }

    #[test]
    fn every_record_of_a_contestant_has_its_dot() {
        let svg = drawn(RUN).unwrap();
        let document = Document::parse(&svg).unwrap();
        let legend = MARKS.iter().filter(|(.., mark)| *mark != Mark::Cross).count();
        // lockmap, lockable, perkey fifo, keyed-lock; the floor is a cross.
        assert_eq!(count(&document, "circle"), legend + 4);
    }

    #[test]
    fn all_text_is_text() {
        let svg = drawn(RUN).unwrap();
        let document = Document::parse(&svg).unwrap();
        let texts: Vec<String> = document
            .descendants()
            .filter(|node| node.has_tag_name("text"))
            .map(|node| node.text().unwrap_or_default().trim().to_owned())
            .collect();
        let said = |what: &str| texts.iter().any(|text| text == what);
        for title in ["1 thread, fresh u64", "8 threads", "2 cores, <one> & \"another\"", "lockable", "100 ×"] {
            assert!(said(title), "{title}: {texts:?}");
        }
        // Nobody is compared with perkey there.
        assert!(!said("perkey's calls"));
    }

    #[test]
    fn it_brings_its_own_background() {
        let svg = drawn(RUN).unwrap();
        let document = Document::parse(&svg).unwrap();
        let first = document.descendants().find(|node| node.has_tag_name("rect")).unwrap();
        assert_eq!((first.attribute("width"), first.attribute("fill")), (Some("960"), Some("#FFFFFF")));
    }

    #[test]
    fn everything_is_inside() {
        let svg = drawn(RUN).unwrap();
        let document = Document::parse(&svg).unwrap();
        for circle in document.descendants().filter(|node| node.has_tag_name("circle")) {
            let x: i32 = circle.attribute("cx").unwrap().parse().unwrap();
            assert!((0..WIDTH).contains(&x), "{x}");
        }
    }

    #[test]
    fn a_run_without_peers_is_refused() {
        let text = "shape,title,contestant,ratio_to_perkey,goal_ratio\ncalls,calls,perkey with_key,1.0,-\n";
        assert_eq!(drawn(text).unwrap_err(), "run.csv: nobody in it is compared with perkey");
    }
}
