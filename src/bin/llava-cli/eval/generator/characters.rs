//! Pictures of letters and digits.

use super::background::{background, finish};
use super::canvas::{Canvas, Colour, SIDE};
use super::glyphs::{self, FONTS, Face};
use super::objects::snap;
use super::rng::Rng;
use super::tasks::{Asked, Sketch};

pub const WORDS: [&str; 106] = [
    "BOOK", "TREE", "FISH", "BIRD", "LAMP", "DOOR", "MILK", "RAIN", "SNOW", "WIND", "FIRE", "ROCK", "SAND", "GOLD",
    "IRON", "WOOD", "LEAF", "ROSE", "SHIP", "BOAT", "ROAD", "CITY", "PARK", "HOME", "ROOM", "WALL", "ROOF", "DESK",
    "SOFA", "BELL", "DRUM", "SONG", "GAME", "BALL", "KITE", "JUMP", "WALK", "SWIM", "COOK", "BAKE", "CAKE", "SOUP",
    "RICE", "CORN", "BEAN", "PEAR", "PLUM", "LIME", "KIWI", "FROG", "TOAD", "BEAR", "WOLF", "LION", "DEER", "GOAT",
    "LAMB", "DUCK", "SWAN", "CRAB", "MOTH", "WORM", "STAR", "MOON", "MARS", "VEGA", "HAND", "FOOT", "HEAD", "NECK",
    "NOSE", "BACK", "KNEE", "BABY", "KING", "TIME", "YEAR", "WEEK", "HOUR", "ZERO", "FOUR", "FIVE", "NINE", "LEFT",
    "DOWN", "OPEN", "SHUT", "FAST", "SLOW", "COLD", "WARM", "DARK", "PINK", "BLUE", "GREY", "JAZZ", "QUIZ", "ONYX",
    "HAWK", "VASE", "YARN", "ZINC", "EXIT", "AXLE", "JUNK", "VIEW",
];

/// Nearly black or nearly white.
pub fn ink(rng: &mut Rng) -> Colour {
    let (low, high) = if rng.chance(0.5) { (0, 33) } else { (228, 255) };
    std::array::from_fn(|_| u8::try_from(rng.between(low, high)).unwrap_or(0))
}

/// Writes characters with their middles `step` pixels apart, the first at `(x, y)`.
pub fn write(canvas: &mut Canvas, face: Face, text: &str, (x, y): (i32, i32), step: i32, ink: Colour) {
    for (letter, x) in text.chars().zip((x..).step_by(usize::try_from(step).unwrap_or(1))) {
        glyphs::draw(canvas, face, letter, (x, y), ink);
    }
}

/// Where a run of four cells may begin so that their middles lie on the lattice.
fn start(rng: &mut Rng, cell: i32) -> i32 {
    snap(rng.uniform(0.0, f64::from(SIDE - 4 * cell)) + f64::from(cell) / 2.0) - cell / 2
}

/// 4 x 4 digits, with or without lines between them.
pub fn grid(rng: &mut Rng) -> (Sketch, Asked) {
    let cell = *rng.pick(&[32, 40, 48]);
    let (left, top) = (start(rng, cell), start(rng, cell));
    let font = rng.below(FONTS);
    let face = if cell >= 40 && rng.chance(0.5) { Face::big(font) } else { Face::medium(font) };
    let digits: [[usize; 4]; 4] = std::array::from_fn(|_| std::array::from_fn(|_| rng.below(10)));
    let (row, column) = (rng.below(4), rng.below(4));
    let text = *rng.pick(&[
        "What digit is in row {r} column {c}?",
        "Read the digit at row {r}, column {c}.",
        "Row {r}, column {c}: which digit?",
    ]);
    let question = text.replace("{r}", &(row + 1).to_string()).replace("{c}", &(column + 1).to_string());
    let sketch: Sketch = Box::new(move |rng| {
        let mut canvas = background(rng);
        let ink = ink(rng);
        if rng.chance(0.6) {
            for i in 0..5 {
                canvas.vertical(left + i * cell, top, top + 4 * cell, ink);
                canvas.horizontal(left, left + 4 * cell, top + i * cell, ink);
            }
        }
        for (row, y) in digits.iter().zip((top + cell / 2..).step_by(usize::try_from(cell).unwrap_or(1))) {
            let text: String = row.iter().map(usize::to_string).collect();
            write(&mut canvas, face, &text, (left + cell / 2, y), cell, ink);
        }
        finish(rng, canvas)
    });
    (sketch, (question, digits[row][column].to_string()))
}

fn four_letters(rng: &mut Rng) -> String {
    if rng.chance(0.5) {
        return (*rng.pick(&WORDS)).to_owned();
    }
    (0..4).map(|_| char::from(b'A' + u8::try_from(rng.below(26)).unwrap_or(0))).collect()
}

/// Four letters of 24 or 32 pixels.
pub fn word(rng: &mut Rng) -> (Sketch, Asked) {
    let font = rng.below(FONTS);
    let face = if rng.chance(0.5) { Face::medium(font) } else { Face::big(font) };
    let cell = *rng.pick(&[32, 40, 48]);
    written(rng, face, cell)
}

/// Four letters of 16 or 48 pixels, smaller and larger than [`word`] writes them.
pub fn word_of_another_size(rng: &mut Rng) -> (Sketch, Asked) {
    let (face, cell) = if rng.chance(0.5) { (Face::SMALL, 16) } else { (Face::LARGE, 56) };
    written(rng, face, cell)
}

fn written(rng: &mut Rng, face: Face, cell: i32) -> (Sketch, Asked) {
    let word = four_letters(rng);
    let margin = f64::from(face.size_px.max(20));
    let (x, y) = (start(rng, cell), snap(rng.uniform(margin, f64::from(SIDE) - margin)));
    let question = *rng.pick(&["What word is written?", "Read the word.", "What does the text say?"]);
    let answer = word.clone();
    let sketch: Sketch = Box::new(move |rng| {
        let mut canvas = background(rng);
        let ink = ink(rng);
        write(&mut canvas, face, &word, (x + cell / 2, y), cell, ink);
        finish(rng, canvas)
    });
    (sketch, (question.to_owned(), answer))
}

/// A table of numbers of two digits with words for the names of its three columns and three rows.
pub fn table(rng: &mut Rng) -> (Sketch, Asked) {
    const CELL: i32 = SIDE / 4;
    const STEP: i32 = 13;
    let mut names = WORDS;
    rng.shuffle(&mut names);
    let numbers: [[usize; 3]; 3] = std::array::from_fn(|_| std::array::from_fn(|_| 10 + rng.below(90)));
    let (row, column) = (rng.below(3), rng.below(3));
    // the first three words name the columns, the next three the rows
    let question = format!("What number is in row {} column {}?", names[3 + row], names[column]);
    let sketch: Sketch = Box::new(move |rng| {
        let mut canvas = background(rng);
        let ink = ink(rng);
        for i in 1..4 {
            canvas.vertical(i * CELL, 0, SIDE - 1, ink);
            canvas.horizontal(0, SIDE - 1, i * CELL, ink);
        }
        let mut put = |text: &str, column: i32, row: i32| {
            let wide = i32::try_from(text.len()).unwrap_or(0) - 1;
            let x = column * CELL + CELL / 2 - wide * STEP / 2;
            write(&mut canvas, Face::SMALL, text, (x, row * CELL + CELL / 2), STEP, ink);
        };
        for (i, at) in (0..3).zip(1..) {
            put(names[i], at, 0);
            put(names[3 + i], 0, at);
            for (j, to) in (0..3).zip(1..) {
                put(&numbers[i][j].to_string(), to, at);
            }
        }
        finish(rng, canvas)
    });
    (sketch, (question, numbers[row][column].to_string()))
}
