//! How a table of problems is written: see any area for an example.

/// Makes an enum of problems with its verdicts and its part of the catalogue. A line is
/// `/// what`, then `Name { fields } = code Grade [problems of e2fsck] "text" => repair;`, the repair being optional.
macro_rules! problems {
    ($(#[$outer:meta])* $name:ident {
        $(#[doc = $about:literal] $variant:ident { $($field:ident: $type:ty),* } = $code:literal $grade:ident
            [$($answer:literal),*] $text:literal $(=> $repair:expr)?;)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the fields are what the text says")]
        pub enum $name {
            $(#[doc = $about] $variant { $($field: $type),* },)*
        }

        impl $name {
            /// This area's part of the list of all problems.
            pub const CATALOGUE: &[super::CatalogueLine] = &[$(super::CatalogueLine {
                code: $code,
                name: stringify!($variant),
                grade: super::Grade::$grade,
                about: $about,
                answers: &[$($answer),*],
                repair: concat!($(stringify!($repair))?),
            }),*];

            /// What is to be said and done.
            #[allow(unused_variables, clippy::too_many_lines, reason = "a table; a text need not use every field")]
            pub fn verdict(&self) -> super::Verdict {
                match self {
                    $(Self::$variant { $($field),* } => super::Verdict {
                        code: $code,
                        grade: super::Grade::$grade,
                        text: format!($text),
                        repair: problems!(@repair $($repair)?),
                    },)*
                }
            }
        }
    };
    (@repair) => { None };
    (@repair $repair:expr) => { Some($repair) };
}
