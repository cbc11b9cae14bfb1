//! Pictures of coloured shapes, and what can be asked about them.

use super::background::{background, finish};
use super::canvas::SIDE;
use super::objects::{COLOURS, Line, Neighbour, Object, SHAPES, are_apart, neighbour, place, plural, snap};
use super::rng::Rng;
use super::tasks::{Asked, Sketch};

/// Up to three shapes, all different, some in a line.
struct Scene {
    objects: Vec<Object>,
}

impl Scene {
    fn new(rng: &mut Rng) -> Self {
        let n = match rng.unit() {
            u if u < 0.15 => 1,
            u if u < 0.65 => 2,
            _ => 3,
        };
        Self::of(rng, n)
    }

    fn of(rng: &mut Rng, n: usize) -> Self {
        loop {
            let mut objects: Vec<Object> =
                shapes(rng)[..n].iter().map(|&shape| Object::new(shape, rng.below(COLOURS.len()))).collect();
            let line = match rng.unit() {
                u if u < 0.45 => None,
                u if u < 0.725 => Some(Line::Across),
                _ => Some(Line::Down),
            };
            if place(rng, &mut objects, (4, 7), line) {
                return Self { objects };
            }
        }
    }

    /// Objects whose colour no other one has.
    fn singles(&self) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(|o| self.objects.iter().filter(|p| p.colour == o.colour).count() == 1)
    }

    fn attributes(&self) -> Vec<Asked> {
        let mut asked = Vec::new();
        for object in &self.objects {
            let shape = object.shape();
            for text in ["What colour is the {}?", "Which colour is the {}?", "Name the colour of the {}."] {
                asked.push((text.replace("{}", shape), object.colour().to_owned()));
            }
        }
        for object in self.singles() {
            let colour = object.colour();
            for text in ["What shape is {}?", "Which shape is {}?", "Name the {} shape."] {
                asked.push((text.replace("{}", colour), object.shape().to_owned()));
            }
        }
        asked
    }

    fn relations(&self) -> Vec<Asked> {
        const DIRECTIONS: [(&str, (i32, i32)); 4] =
            [("left of", (-1, 0)), ("right of", (1, 0)), ("above", (0, -1)), ("below", (0, 1))];
        let mut asked = Vec::new();
        for (i, object) in self.objects.iter().enumerate() {
            for (words, direction) in DIRECTIONS {
                if let Neighbour::Only(other) = neighbour(&self.objects, i, direction) {
                    for head in ["What", "Which object"] {
                        let question = format!("{head} is {words} the {}?", object.shape());
                        asked.push((question, self.objects[other].name()));
                    }
                }
            }
        }
        asked
    }

    /// From left to right; nothing where two objects lie above each other.
    fn captions(&self) -> Vec<Asked> {
        let mut order: Vec<&Object> = self.objects.iter().collect();
        order.sort_by_key(|o| o.x);
        if order.windows(2).any(|pair| pair[1].x - pair[0].x <= 12) {
            return Vec::new();
        }
        let mut names: Vec<String> = order.into_iter().map(Object::with_article).collect();
        let last = names.pop().unwrap_or_default();
        let answer = if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) };
        ["Describe the image.", "What is in the image?"].map(|q| (q.to_owned(), answer.clone())).to_vec()
    }
}

fn shapes(rng: &mut Rng) -> [usize; 6] {
    let mut shapes = std::array::from_fn(|i| i);
    rng.shuffle(&mut shapes);
    shapes
}

/// How to draw objects.
fn sketch(objects: Vec<Object>) -> Sketch {
    Box::new(move |rng| {
        let mut canvas = background(rng);
        for object in &objects {
            object.draw(rng, &mut canvas);
        }
        finish(rng, canvas)
    })
}

/// A scene about which something of the kind can be asked, and one such question.
fn ask(rng: &mut Rng, kind: fn(&Scene) -> Vec<Asked>) -> (Sketch, Asked) {
    loop {
        let scene = Scene::new(rng);
        let asked = kind(&scene);
        if !asked.is_empty() {
            return (sketch(scene.objects), rng.pick(&asked).clone());
        }
    }
}

pub fn attribute(rng: &mut Rng) -> (Sketch, Asked) {
    ask(rng, Scene::attributes)
}

pub fn relation(rng: &mut Rng) -> (Sketch, Asked) {
    ask(rng, Scene::relations)
}

pub fn caption(rng: &mut Rng) -> (Sketch, Asked) {
    ask(rng, Scene::captions)
}

/// Colours and places asked one after the other: the first question with its answer, then the second one.
pub fn second(rng: &mut Rng) -> (Sketch, Asked, Asked) {
    loop {
        let n = 2 + rng.below(2);
        let scene = Scene::of(rng, n);
        let (first, then) = (scene.attributes(), scene.relations());
        if !then.is_empty() {
            let (first, then) = (rng.pick(&first).clone(), rng.pick(&then).clone());
            return (sketch(scene.objects), first, then);
        }
    }
}

/// One to six of a shape, and some others.
pub fn count(rng: &mut Rng) -> (Sketch, Asked) {
    loop {
        let shapes = shapes(rng);
        let wanted = 1 + rng.below(6);
        let mut objects = vec![Object::new(shapes[0], 0); wanted];
        for _ in 0..rng.below(4) {
            objects.push(Object::new(shapes[1 + rng.below(2)], 0));
        }
        for object in &mut objects {
            object.colour = rng.below(COLOURS.len());
        }
        let steps = if objects.len() > 5 { (3, 4) } else { (3, 5) };
        if place(rng, &mut objects, steps, None) {
            let text = *rng.pick(&["How many {} are there?", "Count the {}.", "What is the number of {}?"]);
            return (sketch(objects), (text.replace("{}", &plural(shapes[0])), wanted.to_string()));
        }
    }
}

/// A shape of 16 pixels among two or three of more than 40.
pub fn small(rng: &mut Rng) -> (Sketch, Asked) {
    loop {
        let n = 2 + rng.below(2);
        let mut scene = Scene::of(rng, n);
        let taken: Vec<usize> = scene.objects.iter().map(|o| o.shape).collect();
        let free: Vec<usize> = (0..SHAPES.len()).filter(|s| !taken.contains(s)).collect();
        scene.objects.iter_mut().for_each(|o| o.radius = o.radius.max(20));
        let mut little = Object::new(*rng.pick(&free), rng.below(COLOURS.len()));
        little.radius = 8;
        let margin = f64::from(little.radius + 4);
        let far = f64::from(SIDE) - margin;
        (little.x, little.y) = (snap(rng.uniform(margin, far)), snap(rng.uniform(margin, far)));
        let question = format!("What colour is the small {}?", little.shape());
        let answer = little.colour().to_owned();
        scene.objects.push(little);
        if are_apart(&scene.objects, 3) {
            return (sketch(scene.objects), (question, answer));
        }
    }
}

/// In which of 4 x 4 parts of the picture the middle of an object lies, well away from their borders.
pub fn cell(rng: &mut Rng) -> (Sketch, Asked) {
    const PART: i32 = SIDE / 4;
    let is_clear = |v: i32| (12..=PART - 12).contains(&(v % PART));
    loop {
        let scene = Scene::new(rng);
        let clear: Vec<&Object> = scene.objects.iter().filter(|o| is_clear(o.x) && is_clear(o.y)).collect();
        if clear.is_empty() {
            continue;
        }
        let object = *rng.pick(&clear);
        let question = format!("In a grid of 4 rows and 4 columns, where is the {}?", object.shape());
        let answer = format!("row {} column {}", object.y / PART + 1, object.x / PART + 1);
        return (sketch(scene.objects), (question, answer));
    }
}

/// Whether an object is there. `yes` decides the answer. What is not there has the shape of an object, the colour of one, or
/// neither, each as often as the others.
pub fn presence(rng: &mut Rng, yes: bool) -> (Sketch, Asked) {
    let scene = Scene::new(rng);
    let mut asked = rng.pick(&scene.objects).clone();
    let kind = rng.below(3);
    while !yes && scene.objects.iter().any(|o| (o.shape, o.colour) == (asked.shape, asked.colour)) {
        if kind != 0 {
            asked.shape = rng.below(SHAPES.len());
        }
        if kind != 1 {
            asked.colour = rng.below(COLOURS.len());
        }
    }
    let question = format!("Is there {}?", asked.with_article());
    (sketch(scene.objects), (question, if yes { "yes" } else { "no" }.to_owned()))
}
