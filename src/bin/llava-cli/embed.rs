//! `llava-cli embed`: what the projector gives for pictures, as NumPy files or as encoded pictures.

use anyhow::Result;
use llava::TokenCount;
use llava::llama::CancelToken;
use llava::session::EncodedPicture;

use crate::args::{EmbedArgs, EmbedFormat};
use crate::console::say;
use crate::exit::Problem;
use crate::files::Files;
use crate::npy;
use crate::open;
use crate::pictures::{Reader, paths};
use crate::save::{save, save_private};
use crate::signals::Interrupt;

pub fn run(args: &EmbedArgs, interrupt: &Interrupt) -> Result<()> {
    let images = paths(&args.picture.image);
    if images.is_empty() {
        return Err(Problem::usage("embed needs a picture: --image FILE").into());
    }
    if images.len() != args.output_file.len() {
        let message =
            format!("{} pictures and {} -o: each picture has a file of its own", images.len(), args.output_file.len());
        return Err(Problem::usage(message).hint("embed --image a.png -o a.npy --image b.png -o b.npy").into());
    }
    for (i, path) in args.output_file.iter().enumerate() {
        if args.output_file[..i].contains(path) {
            return Err(Problem::usage(format!("-o {} is given twice", path.display())).into());
        }
    }
    let reader = Reader::new(&args.picture);
    let pictures = images.iter().map(|path| reader.pixels(path)).collect::<Result<Vec<_>>>()?;
    let files = Files::find(&args.model)?;
    let token = CancelToken::new();
    interrupt.watch(token.clone())?;
    let (_, projector) = open::seeing(&args.model, &args.picture, &files, interrupt)?;

    if args.format == EmbedFormat::Encoded {
        for ((picture, image), out) in pictures.iter().zip(&images).zip(&args.output_file) {
            let encoded = EncodedPicture::encode(&projector, picture, None, &token)?;
            save_private(out, &encoded.to_bytes())?;
            let rows = encoded.visual_tokens();
            say(format_args!("{} -> {}: {rows} visual tokens", image.display(), out.display()));
        }
        return Ok(());
    }
    for ((picture, image), out) in pictures.iter().zip(&images).zip(&args.output_file) {
        let prepared = projector.prepare(picture.image(), TokenCount::ZERO, 0)?;
        let chunks: Vec<_> = prepared.images().map(|(index, _)| (&prepared, index)).collect();
        let parts = projector.encode(&chunks, &token)?;
        let width = projector.info().width;
        let rows = parts.iter().map(|(part, _)| part.rows().get()).sum();
        let values: Vec<f32> = parts.iter().flat_map(|(part, _)| part.as_slice()).copied().collect();
        save(out, &npy::encode(rows, width, &values))?;
        let took: std::time::Duration = parts.iter().map(|(_, took)| *took).sum();
        say(format_args!("{} -> {}: {rows} rows of {width}, {} ms", image.display(), out.display(), took.as_millis()));
    }
    Ok(())
}
