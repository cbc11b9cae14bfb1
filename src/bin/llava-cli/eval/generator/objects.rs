//! Coloured shapes: what they are called, how they are drawn, where they may lie.

use super::canvas::{Canvas, Colour, SIDE};
use super::rng::Rng;

pub const COLOURS: [(&str, Colour); 8] = [
    ("red", [208, 32, 36]),
    ("orange", [242, 138, 22]),
    ("yellow", [240, 222, 44]),
    ("green", [36, 158, 58]),
    ("blue", [40, 76, 214]),
    ("purple", [132, 48, 172]),
    ("black", [18, 18, 18]),
    ("white", [246, 246, 246]),
];

pub const SHAPES: [&str; 6] = ["circle", "square", "triangle", "star", "cross", "diamond"];

pub fn plural(shape: usize) -> String {
    format!("{}{}", SHAPES[shape], if SHAPES[shape] == "cross" { "es" } else { "s" })
}

/// A shape in a colour at a place; distances in pixels.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub shape: usize,
    pub colour: usize,
    pub x: i32,
    pub y: i32,
    pub radius: i32,
}

impl Object {
    pub fn new(shape: usize, colour: usize) -> Self {
        Self { shape, colour, x: 0, y: 0, radius: 0 }
    }

    pub fn shape(&self) -> &'static str {
        SHAPES[self.shape]
    }

    pub fn colour(&self) -> &'static str {
        COLOURS[self.colour].0
    }

    /// `red circle`
    pub fn name(&self) -> String {
        format!("{} {}", self.colour(), self.shape())
    }

    /// `a red circle`, `an orange star`
    pub fn with_article(&self) -> String {
        let article = if self.colour() == "orange" { "an" } else { "a" };
        format!("{article} {}", self.name())
    }

    pub fn draw(&self, rng: &mut Rng, canvas: &mut Canvas) {
        let (x, y, r) = (f64::from(self.x), f64::from(self.y), f64::from(self.radius));
        let (sin, cos) = sin_cos(rng.uniform(-0.1, 0.1));
        let ink: Colour = COLOURS[self.colour]
            .1
            .map(|c| u8::try_from((i32::from(c) + rng.between(-14, 14)).clamp(0, 255)).unwrap_or(0));
        let corners: Vec<(f64, f64)> = match self.shape() {
            "circle" => return canvas.disc(x, y, r * 0.92, ink),
            "square" => regular(4, &[1.12], std::f64::consts::FRAC_PI_4),
            "triangle" => regular(3, &[1.1], 0.0),
            "star" => regular(10, &[1.1, 0.44], 0.0),
            "diamond" => vec![(0.0, -1.1), (0.68, 0.0), (0.0, 1.1), (-0.68, 0.0)],
            _ => cross(0.34),
        };
        let place = |(a, b): (f64, f64)| (x + r * (a * cos - b * sin), y + r * (a * sin + b * cos));
        canvas.polygon(&corners.into_iter().map(place).collect::<Vec<_>>(), ink);
    }
}

fn cross(w: f64) -> Vec<(f64, f64)> {
    let arm = [(-w, -1.0), (w, -1.0), (w, -w)];
    let turn = |(x, y): (f64, f64)| (-y, x);
    let mut corners = Vec::new();
    let mut points = arm.to_vec();
    for _ in 0..4 {
        corners.extend(points.iter().copied());
        points = points.into_iter().map(turn).collect();
    }
    corners
}

/// Corners on a circle, clockwise from the top; their distances from the middle repeat `radii`.
fn regular(n: u32, radii: &[f64], offset: f64) -> Vec<(f64, f64)> {
    let corner = |(i, radius): (u32, &f64)| {
        let (sin, cos) = sin_cos(offset + std::f64::consts::TAU * f64::from(i) / f64::from(n));
        (radius * sin, -radius * cos)
    };
    (0..n).zip(radii.iter().cycle()).map(corner).collect()
}

/// Sine and cosine, each by its power series: the platforms' own functions differ in the last bits.
fn sin_cos(angle: f64) -> (f64, f64) {
    let turns = (angle / std::f64::consts::TAU + 0.5).floor();
    let x = angle - turns * std::f64::consts::TAU;
    let (mut sin, mut cos, mut term) = (0.0, 0.0, 1.0);
    for k in 0..30_u32 {
        match k % 4 {
            0 => cos += term,
            1 => sin += term,
            2 => cos -= term,
            _ => sin -= term,
        }
        term *= x / f64::from(k + 1);
    }
    (sin, cos)
}

/// The nearest point of the lattice of 8 pixels that centres lie on.
pub fn snap(value: f64) -> i32 {
    (value / 8.0 + 0.5).floor() as i32 * 8
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    Across,
    Down,
}

/// Gives objects sizes (in steps of 4 pixels) and places apart from each other, roughly on a line where one is given.
/// Returns whether that worked.
pub fn place(rng: &mut Rng, objects: &mut [Object], steps: (i32, i32), line: Option<Line>) -> bool {
    let side = f64::from(SIDE);
    let n = objects.len() as f64;
    for _ in 0..200 {
        let mut level = 0.0;
        for (i, object) in objects.iter_mut().enumerate() {
            object.radius = rng.between(steps.0, steps.1) * 4;
            let margin = f64::from(object.radius + 4);
            let (mut x, mut y) = (rng.uniform(margin, side - margin), rng.uniform(margin, side - margin));
            if let Some(line) = line {
                let along = (i as f64 + 0.5 + rng.uniform(-0.16, 0.16)) * side / n;
                let off = if i == 0 { side / 2.0 + rng.uniform(-70.0, 70.0) } else { level + rng.uniform(-16.0, 16.0) };
                if i == 0 {
                    level = off;
                }
                (x, y) = if line == Line::Across { (along, off) } else { (off, along) };
                (x, y) = (x.clamp(margin, side - margin), y.clamp(margin, side - margin));
            }
            (object.x, object.y) = (snap(x), snap(y));
        }
        if are_apart(objects, 5) {
            return true;
        }
    }
    false
}

/// Whether all gaps between objects are wider than `gap` pixels.
pub fn are_apart(objects: &[Object], gap: i32) -> bool {
    objects.iter().enumerate().all(|(i, a)| {
        objects[..i].iter().all(|b| {
            let (dx, dy, least) = (a.x - b.x, a.y - b.y, a.radius + b.radius + gap);
            dx * dx + dy * dy > least * least
        })
    })
}

/// What lies in a direction from an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    Nobody,
    /// One object, and no other that could be meant.
    Only(usize),
    Unclear,
}

/// Looks from object `from` along `(dx, dy)`, one of which is 0 and the other 1 or -1.
pub fn neighbour(objects: &[Object], from: usize, (dx, dy): (i32, i32)) -> Neighbour {
    let mut found = Neighbour::Nobody;
    for (i, other) in objects.iter().enumerate().filter(|(i, _)| *i != from) {
        let (x, y) = (other.x - objects[from].x, other.y - objects[from].y);
        let (along, across) = (f64::from(x * dx + y * dy), f64::from((x * dy).abs() + (y * dx).abs()));
        if along > 0.0 && across <= 0.6 * along {
            if found != Neighbour::Nobody {
                return Neighbour::Unclear;
            }
            found = Neighbour::Only(i);
        } else if along > 0.0 && across <= 1.05 * along {
            return Neighbour::Unclear;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: i32, y: i32) -> Object {
        Object { x, y, radius: 10, ..Object::new(0, 0) }
    }

    #[test]
    fn sines_are_right() {
        for i in -70..70 {
            let angle = f64::from(i) * 0.1;
            let (sin, cos) = sin_cos(angle);
            assert!((sin - angle.sin()).abs() < 1e-12 && (cos - angle.cos()).abs() < 1e-12, "{angle}");
        }
    }

    #[test]
    fn neighbours_are_told_only_where_they_are_clear() {
        let objects = [at(100, 100), at(40, 100), at(100, 180)];
        assert_eq!(neighbour(&objects, 0, (-1, 0)), Neighbour::Only(1));
        assert_eq!(neighbour(&objects, 0, (1, 0)), Neighbour::Nobody);
        assert_eq!(neighbour(&objects, 0, (0, 1)), Neighbour::Only(2));
        assert_eq!(neighbour(&objects, 1, (1, 0)), Neighbour::Only(0));
        let crowd = [at(100, 100), at(40, 100), at(20, 104)];
        assert_eq!(neighbour(&crowd, 0, (-1, 0)), Neighbour::Unclear);
        let slanted = [at(100, 100), at(40, 60)];
        assert_eq!(neighbour(&slanted, 0, (-1, 0)), Neighbour::Unclear);
    }

    #[test]
    fn a_cross_has_four_arms() {
        assert_eq!(cross(0.3).len(), 12);
        let (x, y) = (cross(0.3).iter().map(|c| c.0).sum::<f64>(), cross(0.3).iter().map(|c| c.1).sum::<f64>());
        assert!(x.abs() < 1e-9 && y.abs() < 1e-9);
    }
}
