//! Special registers.

/// A special register that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of PTX")]
pub(crate) enum Special {
    /// The component: 0, 1, 2 for x, y, z; 3 is always 0 or 1.
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Clusterid(u8),
    Nclusterid(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    Clock,
    ClockHi,
    Clock64,
    Globaltimer,
    GlobaltimerLo,
    GlobaltimerHi,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    DynamicSmemSize,
    TotalSmemSize,
    AggrSmemSize,
    /// `%envreg<32>`
    Envreg(u8),
    /// `%pm0` to `%pm7`: always zero here.
    Zero,
    CurrentGraphExec,
}

impl Special {
    /// The special register of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        if let Some((vector, component)) = name.split_once('.') {
            let component = ["x", "y", "z", "w"]
                .iter()
                .position(|own| *own == component)? as u8;
            return Some(match vector {
                "%tid" => Self::Tid(component),
                "%ntid" => Self::Ntid(component),
                "%ctaid" => Self::Ctaid(component),
                "%nctaid" => Self::Nctaid(component),
                "%clusterid" => Self::Clusterid(component),
                "%nclusterid" => Self::Nclusterid(component),
                "%cluster_ctaid" => Self::ClusterCtaid(component),
                "%cluster_nctaid" => Self::ClusterNctaid(component),
                _ => return None,
            });
        }
        Some(match name {
            "%cluster_ctarank" => Self::ClusterCtarank,
            "%cluster_nctarank" => Self::ClusterNctarank,
            "%is_explicit_cluster" => Self::IsExplicitCluster,
            "%laneid" => Self::Laneid,
            "%warpid" => Self::Warpid,
            "%nwarpid" => Self::Nwarpid,
            "%smid" => Self::Smid,
            "%nsmid" => Self::Nsmid,
            "%gridid" => Self::Gridid,
            "%clock" => Self::Clock,
            "%clock_hi" => Self::ClockHi,
            "%clock64" => Self::Clock64,
            "%globaltimer" => Self::Globaltimer,
            "%globaltimer_lo" => Self::GlobaltimerLo,
            "%globaltimer_hi" => Self::GlobaltimerHi,
            "%lanemask_eq" => Self::LanemaskEq,
            "%lanemask_le" => Self::LanemaskLe,
            "%lanemask_lt" => Self::LanemaskLt,
            "%lanemask_ge" => Self::LanemaskGe,
            "%lanemask_gt" => Self::LanemaskGt,
            "%dynamic_smem_size" => Self::DynamicSmemSize,
            "%total_smem_size" => Self::TotalSmemSize,
            "%aggr_smem_size" => Self::AggrSmemSize,
            "%current_graph_exec" => Self::CurrentGraphExec,
            _ => {
                if let Some(digits) = name.strip_prefix("%envreg") {
                    let number = digits.parse().ok()?;
                    return (number < 32).then_some(Self::Envreg(number));
                }
                let digits = name.strip_prefix("%pm")?;
                let number: u32 = digits.trim_end_matches("_64").parse().ok()?;
                return (number < 8).then_some(Self::Zero);
            }
        })
    }
}
