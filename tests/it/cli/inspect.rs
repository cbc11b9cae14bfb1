//! `llava-cli inspect`.

use std::fs;
use std::path::Path;

use llava::TokenCount;
use llava::compress::{CompressorSpec, Layout, Rows, overview};
use llava::image::{DecodeOptions, RgbImage, load};
use llava::llama::CancelToken;
use serde_json::Value;

use super::{Outcome, World, demo, text};
use crate::models::Family;
use crate::world::{demo_files, files, open};

const KEPT: [u8; 3] = [0, 200, 83];

fn inspect(world: &World, args: &[&str]) -> Outcome {
    world.run(&[&["inspect", "-t", "1", "--no-warmup"], args].concat())
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn picture(path: &Path) -> RgbImage {
    load(path, &DecodeOptions::default()).unwrap().image
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|n| u32::try_from(n.as_u64().unwrap()).unwrap()).collect()
}

/// The cells of a tile whose border is drawn as kept, by the place that the account gives.
fn framed(drawing: &RgbImage, tile: &Value) -> Vec<u32> {
    let side = |key: &str| u32::try_from(tile[key].as_u64().unwrap()).unwrap();
    let (columns, rows) = (side("columns"), side("rows"));
    let [x, y, width, height] = numbers(&tile["drawn_at_px"]).try_into().unwrap();
    let is_framed = |cell: u32| {
        let (column, row) = (cell % columns, cell / columns);
        let (left, top) = (x + column * width / columns, y + row * height / rows);
        let (right, bottom) = (x + (column + 1) * width / columns, y + (row + 1) * height / rows);
        let corners = [(left + 1, top + 1), (right - 2, top + 1), (left + 1, bottom - 2), (right - 2, bottom - 2)];
        let inked = corners.iter().filter(|&&(x, y)| drawing.pixel(x, y) == Some(KEPT)).count();
        assert!(inked == 0 || inked == 4, "cell {cell}");
        inked == 4
    };
    (0..columns * rows).filter(|&cell| is_framed(cell)).collect()
}

#[test]
fn survivors_are_drawn_where_the_library_says() {
    let world = World::new();
    let image = demo("shapes.png");
    let (model, projector) = open(&demo_files());
    let prepared = projector.prepare(&picture(&image), TokenCount::ZERO, 0).unwrap();
    let (embedding, _) = projector.encode(&[(&prepared, 0)], &CancelToken::new()).unwrap().remove(0);
    let layout = Layout::of(embedding.grid(), embedding.rows()).unwrap();
    let rows = Rows::new(&embedding, layout, model.n_embd()).unwrap();

    for spec in ["div-c", "div-c:merge=0.5", "pool", "tome-local"] {
        let (out, account) = (world.path("out.png"), world.path("out.json"));
        let args = ["--visual-tokens", "64", "--compressor", spec, "-o", text(&out), "--json", text(&account)];
        let outcome = inspect(&world, &[&["--image", text(&image)], &args[..]].concat()).ok();
        assert!(outcome.stdout.contains("64 of 196 (32.7 %)"), "{outcome:?}");

        let compressor = spec.parse::<CompressorSpec>().unwrap().build(None).unwrap();
        let tokens = compressor.apply(&rows, &compressor.plan(&layout, 64).unwrap()).unwrap();
        let account = json(&account);
        let tile = &account["tiles"][0];
        assert_eq!(numbers(&tile["survivors"]), tokens.anchors(), "{spec}");
        assert_eq!(framed(&picture(&out), tile), tokens.anchors(), "{spec}");
        assert_eq!(
            (&account["rows"], &account["tokens"], &account["kept_cells"]),
            (&196.into(), &64.into(), &64.into())
        );
        assert!(account["kept_energy"].as_f64().is_some_and(|e| (0.5..1.0).contains(&e)), "{account:#}");
    }
}

#[test]
fn tiles_have_budgets_of_their_own_and_the_overview_shows_everything() {
    let world = World::new();
    let pair = files(Family::Idefics3);
    // a colour in each corner
    let (width, height) = (200_u32, 120_u32);
    let colour = |x: u32, y: u32| match (x < width / 2, y < height / 2) {
        (true, true) => [230, 20, 20],
        (false, true) => [20, 230, 20],
        (true, false) => [20, 20, 230],
        (false, false) => [230, 230, 20],
    };
    let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| colour(x, y))).collect();
    let image = world.write("corners.png", RgbImage::from_rgb(width, height, pixels).unwrap().to_png().unwrap());
    let (out, account) = (world.path("out.png"), world.path("out.json"));
    let (model, projector) = (text(&pair.text), text(&pair.projector));
    let run = |setting: &str| {
        let args = ["-m", model, "--mmproj", projector, "--image", text(&image), "--visual-tokens", setting];
        inspect(&world, &[&args[..], &["-o", text(&out), "--json", text(&account)]].concat()).ok();
        json(&account)
    };
    let account = run("50%");
    let tiles = account["tiles"].as_array().unwrap();
    assert!(tiles.len() > 2, "{account:#}");
    let whole: Vec<usize> = (0..tiles.len()).filter(|&i| tiles[i]["overview"] == true).collect();
    assert_eq!(whole, overview("idefics3", tiles.len()).into_iter().collect::<Vec<_>>());
    let budget: u64 = tiles.iter().map(|tile| tile["budget"].as_u64().unwrap()).sum();
    assert_eq!(budget * 2, account["cells"].as_u64().unwrap());
    let drawing = picture(&out);
    for tile in tiles {
        assert_eq!(framed(&drawing, tile), numbers(&tile["survivors"]));
        assert_eq!(tile["survivors"].as_array().unwrap().len() as u64, tile["budget"].as_u64().unwrap());
    }
    // with every cell kept nothing is dark: the tile with all four colours is the overview
    let account = run("full");
    let drawing = picture(&out);
    for (index, tile) in account["tiles"].as_array().unwrap().iter().enumerate() {
        let [x, y, width, height] = numbers(&tile["drawn_at_px"]).try_into().unwrap();
        let strongest = |x: u32, y: u32| {
            let [red, green, blue] = drawing.pixel(x, y).unwrap();
            [red > 128, green > 128, blue > 128]
        };
        // between the middle and the border of a cell in each corner
        let corners = [(8, 8), (width - 9, 8), (8, height - 9), (width - 9, height - 9)];
        let colours = corners.map(|(dx, dy)| strongest(x + dx, y + dy));
        let all = colours == [[true, false, false], [false, true, false], [false, false, true], [true, true, false]];
        assert_eq!(all, whole.contains(&index), "tile {index}: {colours:?}");
    }
}

#[test]
fn the_page_holds_the_picture_and_every_stop() {
    let world = World::new();
    let (image, page, account) = (demo("sign.png"), world.path("a.html"), world.path("a.json"));
    let question = "Is there a </script> in it?";
    let args = ["--visual-tokens", "20%", "-p", question, "--html", text(&page), "--json", text(&account)];
    inspect(&world, &[&["--image", text(&image)], &args[..]].concat()).ok();
    let page = fs::read_to_string(&page).unwrap();
    for elsewhere in ["http:", "https:", "src=", "href="] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    let begin = "<script type=\"application/json\" id=\"data\">";
    let (_, rest) = page.split_once(begin).unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let account = json(&account);
    let png = data["tiles"][0]["png"].as_str().unwrap();
    assert!(png.starts_with("data:image/png;base64,iVBORw0KGgo"), "{png:.40}");

    let stops = data["stops"].as_array().unwrap();
    assert!(stops.len() >= 12);
    let of = |key: &str| stops.iter().map(|stop| stop[key].as_f64().unwrap()).collect::<Vec<_>>();
    assert!(of("budget").is_sorted_by(|a, b| a < b) && of("kept") == of("budget"));
    assert!(of("energy").is_sorted_by(|a, b| *a <= b + 0.02) && of("energy").last() == Some(&1.0));
    let chosen = &stops[usize::try_from(data["chosen"].as_u64().unwrap()).unwrap()];
    assert_eq!(chosen["kept"], 39);
    let first = |row: &Value| row[0].clone();
    let survivors: Vec<Value> = chosen["tiles"][0]["rows"].as_array().unwrap().iter().map(first).collect();
    assert_eq!(Value::from(survivors), account["tiles"][0]["survivors"]);
}

#[test]
fn auto_says_why() {
    let world = World::new();
    let image = demo("sign.png");
    let ask = |question: &str| {
        let out = world.path("auto.json");
        let args = ["--image", text(&image), "--visual-tokens", "auto", "-p", question, "--json", text(&out)];
        inspect(&world, &args).ok();
        json(&out)
    };
    let reads = ask("What word is written?");
    assert_eq!((&reads["tokens"], &reads["reasons"][0]["name"]), (&196.into(), &"question".into()));
    let coarse = ask("What colour is the circle?");
    assert!(coarse["tokens"].as_u64().is_some_and(|n| (64..196).contains(&n)), "{coarse:#}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let world = World::new();
    let image = world.copy("sign.png", "sign.png");
    let before = fs::read(&image).unwrap();
    let (image, out) = (text(&image), world.path("o.png"));
    let out = text(&out);
    for (args, words) in [
        (&["-o", out][..], "inspect needs a picture"),
        (&["--image", image, "--image", image, "-o", out], "one picture, 2 were given"),
        (&["--image", image, "-o", image], "--image and -o name the same file"),
        (&["--image", image, "-o", out, "--html", out], "-o and --html name the same file"),
    ] {
        inspect(&world, args).failed(2, "usage").says(words);
    }
    for (args, words) in [
        (&["--image", image][..], "--output-file"),
        (&["--image", image, "-o", out, "--visual-tokens", "none"], "full, auto, a number from 1"),
        (&["--image", image, "-o", out, "--compressor", "pool:grid=8"], "grid=8: COLUMNSxROWS"),
    ] {
        let outcome = inspect(&world, args);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        outcome.says(words);
    }
    let weights = ["--image", image, "-o", out, "--visual-tokens", "64", "--compressor", "resampler"];
    inspect(&world, &weights).failed(2, "bad-parameter").says("file=PATH");
    inspect(&world, &["--image", "missing.png", "-o", out]).failed(4, "io");
    let nowhere = world.path("none/o.png");
    inspect(&world, &["--image", image, "-o", text(&nowhere)]).failed(1, "io");
    assert!(fs::read(image).unwrap() == before && !Path::new(out).exists());
}

/// What is read is not written over, however it is called.
#[test]
fn models_and_weights_are_not_written_over() {
    let world = World::new();
    let image = demo("shapes.png");
    let copy = |name: &str| {
        let to = world.path(name);
        fs::copy(demo(name), &to).unwrap();
        to
    };
    let (model, projector) = (copy("demo-lm-f16.gguf"), copy("demo-mmproj-f16.gguf"));
    let weights = copy("demo-compressor-f32.gguf");
    let compressor = format!("resampler:file={}", weights.display());
    for (out, flag) in [(&model, "-m"), (&projector, "--mmproj"), (&weights, "--compressor")] {
        let before = fs::read(out).unwrap();
        let args = ["-m", text(&model), "--mmproj", text(&projector), "--image", text(&image)];
        let more = ["--visual-tokens", "64", "--compressor", &compressor, "-o", text(out)];
        let outcome = inspect(&world, &[&args[..], &more[..]].concat());
        assert_eq!(outcome.code, Some(2), "{flag}: {outcome:?}");
        outcome.says(flag).says("name the same file");
        assert!(fs::read(out).unwrap() == before, "{flag}");
    }
    let (one, same) = (world.path("new.png"), world.path(".").join("new.png"));
    let outcome = inspect(&world, &["--image", text(&image), "-o", text(&one), "--html", text(&same)]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
}
