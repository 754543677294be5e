//! What the demo shows of overload control: a page that is sold twice, behind an upstream without a
//! limit and behind one that Guard protects.

/// The page as everybody may have it.
pub const UNGUARDED: &str = "/sale/unguarded";

/// The page as Guard lets through.
pub const GUARDED: &str = "/sale/guarded";

/// The demo's `guard` block: customers first, and nobody waits in vain.
pub const GUARD: &str = "guard {
    class \"customers\" priority=1 wait=\"500ms\"
    class \"default\" priority=2 wait=\"500ms\"
    rule \"paying\" { cookie \"tier\" \"gold\"; class \"customers\" }
}
";
