//! What Weir is to adapt in the A experiments, in the words of its configuration.

use std::path::PathBuf;

/// Who adapts, and what becomes of pages. By default texts are compressed by a helper at lowest
/// priority, and pages are sent as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adaptation {
    /// Who adapts.
    pub helpers: Helpers,
    /// What becomes of pages.
    pub pages: PageRoute,
}

/// Helper processes. There is one: it shares the server's core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Helpers {
    /// None.
    Off,
    /// When nothing else wants the processor.
    #[default]
    Idle,
    /// Like any other process.
    Normal,
}

/// What the route of pages does with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PageRoute {
    /// Nothing.
    #[default]
    Plain,
    /// It has adapters, of which none is for pages.
    OtherTypes,
    /// This plugin sees all requests.
    Plugin(PathBuf),
    /// Two fields are added to all responses.
    Fields,
    /// A piece is put into every page.
    Rewritten,
    /// Requests are held against a list of ads.
    Ads {
        /// Its file.
        list: PathBuf,
        /// What it hides is taken out of pages, too.
        hides: bool,
    },
}

impl Adaptation {
    /// The values of templates.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        vec![("weir-adapt", self.server()), ("weir-pages", self.route())]
    }

    fn server(&self) -> String {
        let helpers = match self.helpers {
            Helpers::Off => "adapt { helpers 0 }",
            Helpers::Idle => "adapt { helpers 1; priority \"idle\" }",
            Helpers::Normal => "adapt { helpers 1; priority \"normal\" }",
        };
        let plugin = match &self.pages {
            PageRoute::Plugin(module) => {
                format!("\nplugin \"empty\" {{ source {:?} }}", module.display().to_string())
            }
            _ => String::new(),
        };
        format!("{helpers}{plugin}")
    }

    fn route(&self) -> String {
        let added = crate::background::ADDED;
        match &self.pages {
            PageRoute::Plain => String::new(),
            PageRoute::OtherTypes => "; compress { types \"application/x-none\" }".to_owned(),
            PageRoute::Plugin(_) => "; use \"empty\"".to_owned(),
            PageRoute::Fields => {
                "; header { set \"X-Lab-One\" \"1\"; set \"X-Lab-Two\" \"two\" }".to_owned()
            }
            PageRoute::Rewritten => {
                format!("; html wait=\"1m\" {{ prepend \"body\" {added:?} }}")
            }
            PageRoute::Ads { list, hides } => {
                let hide = if *hides { "" } else { " hide=#false" };
                format!("; ads{hide} {{ lists {:?} }}", list.display().to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weir_reads_every_one() {
        let list = tempfile::NamedTempFile::new().unwrap();
        let routes = [
            PageRoute::Plain,
            PageRoute::OtherTypes,
            PageRoute::Plugin("/lab/own.wasm".into()),
            PageRoute::Fields,
            PageRoute::Rewritten,
            PageRoute::Ads { list: list.path().to_owned(), hides: false },
            PageRoute::Ads { list: list.path().to_owned(), hides: true },
        ];
        for helpers in [Helpers::Off, Helpers::Idle, Helpers::Normal] {
            for pages in &routes {
                let adaptation = Adaptation { helpers, pages: pages.clone() };
                let text = format!(
                    "{}\nsite \"*\" {{\n listen \":80\"\n route \"/*\" {{ proxy \
                     \"http://127.0.0.1:1\"{} }}\n}}\n",
                    adaptation.server(),
                    adaptation.route()
                );
                let config = weir_config::parse("the lab's", &text);
                assert!(config.is_ok(), "{text}\n{}", config.unwrap_err());
            }
        }
    }
}
