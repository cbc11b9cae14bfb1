//! The page: one file with the tiles as PNG, what is kept at some budgets as JSON, and a slider over them.

use anyhow::Result;
use llava::Error;
use llava::compress::{Compressor, Policy, VisualTokenSetting, share_budget};
use serde_json::{Value, json};

use super::account::Account;
use super::look::{Cut, places};
use crate::usage::ms;

const PAGE: &str = include_str!("page.html");
/// Shares of the cells that the slider stops at.
const STOPS: [f64; 16] =
    [0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.16, 0.2, 0.25, 1.0 / 3.0, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0];

/// The whole page.
pub fn page(account: &Account<'_>, compressor: &dyn Compressor) -> Result<String> {
    let seen = account.seen;
    let mut tiles = Vec::new();
    for tile in &seen.tiles {
        let png = base64(&tile.image.to_png()?);
        tiles.push(json!({
            "width": tile.image.width_px(),
            "height": tile.image.height_px(),
            "overview": tile.overview,
            "columns": tile.grid.columns,
            "rows": tile.grid.rows,
            "png": format!("data:image/png;base64,{png}"),
        }));
    }
    let (stops, chosen) = stops(account, compressor)?;
    let data = json!({
        "account": account.json(),
        "headline": account.headline(),
        "tiles": tiles,
        "stops": stops,
        "chosen": chosen,
    });
    // what is between script tags ends at the first "</": there is none without "<"
    Ok(PAGE.replace("\"%DATA%\"", &data.to_string().replace('<', "\\u003c")))
}

/// What is kept at each budget, fewest first, and which of them was decided on. Empty where the layout is not known.
fn stops(account: &Account<'_>, compressor: &dyn Compressor) -> Result<(Vec<Value>, usize)> {
    let (Some(decision), Some(cut)) = (account.decision, account.cut) else { return Ok((Vec::new(), 0)) };
    let tiles = account.seen.tiles()?;
    let policy = Policy::new(VisualTokenSetting::Auto);
    let shares = STOPS.into_iter().chain([policy.coarse, policy.raised]);
    let mut budgets: Vec<usize> = shares.map(|s| (decision.cells as f64 * s).round() as usize).collect();
    budgets.push(decision.kept());
    budgets.retain(|&budget| budget >= tiles.len().max(1));
    budgets.sort_unstable();
    budgets.dedup();
    let mut stops = Vec::new();
    let mut chosen = 0;
    for budget in budgets {
        if budget == decision.kept() {
            chosen = stops.len();
            stops.push(stop(budget, cut));
            continue;
        }
        match account.seen.cut(compressor, &share_budget(&tiles, budget)) {
            Ok(cut) => stops.push(stop(budget, &cut)),
            // a method that gives some numbers only
            Err(Error::BadParameter { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((stops, chosen))
}

fn stop(budget: usize, cut: &Cut) -> Value {
    let tiles: Vec<Value> = cut
        .tokens
        .iter()
        .zip(&cut.budgets)
        .zip(&cut.energy)
        .map(|((tokens, budget), energy)| {
            let rows: Vec<Vec<u32>> = places(tokens)
                .into_iter()
                .map(|(anchor, members)| {
                    // the cell it stands at comes first
                    let anchor = u32::try_from(anchor).unwrap_or(u32::MAX);
                    [anchor].into_iter().chain(members.iter().copied().filter(|&m| m != anchor)).collect()
                })
                .collect();
            json!({"budget": budget, "energy": energy, "rows": rows})
        })
        .collect();
    json!({"budget": budget, "kept": cut.kept(), "tokens": cut.rows(), "energy": cut.mean_energy(), "ms": ms(cut.took), "tiles": tiles})
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let whole = [group[0], group.get(1).copied().unwrap_or(0), group.get(2).copied().unwrap_or(0)];
        let bits = u32::from(whole[0]) << 16 | u32::from(whole[1]) << 8 | u32::from(whole[2]);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_standard() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn the_page_needs_nothing_else() {
        assert_eq!(PAGE.matches("\"%DATA%\"").count(), 1);
        for elsewhere in ["http:", "https:", "src=", "href=", "@import", "fetch("] {
            assert!(!PAGE.contains(elsewhere), "{elsewhere}");
        }
    }
}
