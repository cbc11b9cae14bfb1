//! Asks a model about a picture: `cargo run --release --example ask -- model.gguf mmproj.gguf picture.jpg "What is this?"`

use std::io::Write;

use llava::llama::{Model, ModelParams};
use llava::mtmd::{Projector, ProjectorParams};
use llava::session::{Part, Picture, Session, SessionParams};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, projector, picture, question] = args.as_slice() else {
        return Err("usage: ask MODEL.gguf MMPROJ.gguf PICTURE QUESTION".into());
    };
    let model = Model::load(model, &ModelParams::default())?;
    let projector = Projector::load(projector, &model, &ProjectorParams::default())?;
    let mut session = Session::new(&model, Some(projector), SessionParams::default())?;

    let mut answer = session.ask([Part::from(Picture::from_file(picture)?), Part::from(question.as_str())])?;
    for piece in answer.by_ref() {
        print!("{}", piece?);
        std::io::stdout().flush()?;
    }
    println!();
    let usage = answer.usage();
    eprintln!("first token after {:.0?}, {} visual tokens", usage.time_to_first_token, usage.visual_tokens);
    Ok(())
}
