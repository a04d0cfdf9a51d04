//! What is searched, and what each part of it is: the mappings, cut at the borders of variables, stacks and
//! thread-local storage, without what is left out.

use std::ops::Range;

use super::maps::Region;

/// What a part of memory is. Of two that overlap the later one in this list counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Label {
    /// A mapping, by its number.
    Region(u32),
    /// Variables of a module, by its number.
    Module(u32),
    /// The live part of a thread's stack, by the thread's number.
    Stack(u32),
    /// Thread-local storage of a thread, by the thread's number.
    ThreadLocal(u32),
    /// Not searched.
    LeftOut,
}

impl Label {
    fn layer(self) -> usize {
        match self {
            Label::Region(_) => 0,
            Label::Module(_) => 1,
            Label::Stack(_) => 2,
            Label::ThreadLocal(_) => 3,
            Label::LeftOut => 4,
        }
    }
}

/// A part of memory that is searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) addresses: Range<u64>,
    pub(super) label: Label,
    /// The mapping that it lies in.
    pub(super) region: u32,
}

/// Cuts the searched mappings at the labels' borders. Labels of one kind may overlap; then any of them counts.
pub(super) fn pieces(regions: &[Region], labels: &[(Range<u64>, Label)]) -> Vec<Piece> {
    let searched = regions.iter().enumerate();
    let searched = searched
        .filter(|(_, region)| region.is_searched())
        .map(|(index, region)| (region.addresses.clone(), Label::Region(index as u32)));
    // Ends before starts at the same address.
    let mut borders: Vec<(u64, bool, Label)> = Vec::new();
    for (addresses, label) in searched.chain(labels.iter().cloned()) {
        if !addresses.is_empty() {
            borders.push((addresses.start, true, label));
            borders.push((addresses.end, false, label));
        }
    }
    borders.sort_unstable_by_key(|(address, starts, label)| (*address, *starts, *label));

    let mut pieces = Vec::new();
    // For each layer how many labels are open, and the last that was opened.
    let mut open = [(0_u32, Label::LeftOut); 5];
    let mut at = 0;
    for (address, starts, label) in borders {
        if address > at && open[0].0 > 0 && open[4].0 == 0 {
            let top = open.iter().rev().find(|(count, _)| *count > 0);
            if let (Some((_, label)), Label::Region(region)) = (top, open[0].1) {
                pieces.push(Piece {
                    addresses: at..address,
                    label: *label,
                    region,
                });
            }
        }
        at = address;
        let layer = &mut open[label.layer()];
        if starts {
            *layer = (layer.0 + 1, label);
        } else {
            layer.0 = layer.0.saturating_sub(1);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(addresses: Range<u64>, writable: bool) -> Region {
        Region {
            addresses,
            readable: writable,
            writable,
            shared: false,
            name: String::new(),
        }
    }

    fn cut(labels: &[(Range<u64>, Label)]) -> Vec<(Range<u64>, Label)> {
        let regions = [
            region(100..200, true),
            region(200..300, false),
            region(300..400, true),
        ];
        let pieces = pieces(&regions, labels).into_iter();
        pieces.map(|piece| (piece.addresses, piece.label)).collect()
    }

    #[test]
    fn without_labels_the_writable_mappings() {
        assert_eq!(
            cut(&[]),
            [(100..200, Label::Region(0)), (300..400, Label::Region(2))]
        );
    }

    #[test]
    fn labels_cut_and_stay_inside_what_is_searched() {
        assert_eq!(
            cut(&[
                (150..350, Label::Module(0)),
                (360..500, Label::Stack(1)),
                (370..380, Label::ThreadLocal(1)),
                (375..377, Label::LeftOut),
                (0..110, Label::LeftOut),
            ]),
            [
                (110..150, Label::Region(0)),
                (150..200, Label::Module(0)),
                (300..350, Label::Module(0)),
                (350..360, Label::Region(2)),
                (360..370, Label::Stack(1)),
                (370..375, Label::ThreadLocal(1)),
                (377..380, Label::ThreadLocal(1)),
                (380..400, Label::Stack(1)),
            ]
        );
    }

    #[test]
    fn overlapping_ranges_are_left_out_to_the_last_end() {
        assert_eq!(
            cut(&[(100..150, Label::LeftOut), (120..400, Label::LeftOut)]),
            []
        );
    }
}
