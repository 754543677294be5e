//! The corpus: requests with the verdict of people who study smuggling, as YAML in the sources of
//! crate `http_desync_guardian`, which cargo has fetched because it is a dependency of these tests.

use std::path::PathBuf;
use std::process::Command;

use saphyr_parser::{Event, Parser};

/// A request and what it is called.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The file's name without its extension.
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) uri: Vec<u8>,
    pub(crate) version: String,
    /// Names and values as bytes.
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) tier: Tier,
}

/// How dangerous a request is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Compliant,
    Acceptable,
    Ambiguous,
    Severe,
}

/// All cases, file by file.
pub(crate) fn load() -> Vec<Case> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(crate_folder().join("tests"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let Node::List(list) = Node::read(&text) else { panic!("{file} is no list") };
        cases.extend(list.iter().map(|node| case(&file, node)));
    }
    cases
}

/// Where cargo keeps the crate's sources.
fn crate_folder() -> PathBuf {
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    // What other systems need has not been fetched.
    let metadata = cargo(&[
        "metadata",
        "--format-version=1",
        "--offline",
        "--locked",
        "--filter-platform",
        host,
    ]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|p| p["name"] == "http_desync_guardian").unwrap();
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
    manifest.parent().unwrap().to_owned()
}

/// What cargo says.
fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn case(file: &str, node: &Node) -> Case {
    let tier = match node.field("expected").field("tier").text() {
        "Compliant" => Tier::Compliant,
        "Acceptable" => Tier::Acceptable,
        "Ambiguous" => Tier::Ambiguous,
        "Severe" => Tier::Severe,
        other => panic!("tier {other} in {file}"),
    };
    let headers = match node.field("headers") {
        Node::List(headers) => &headers[..],
        // `headers:` with nothing after it.
        _ => &[],
    };
    let header = |node: &Node| (node.field("name").bytes(), node.field("value").bytes());
    Case {
        file: file.to_owned(),
        name: node.field("name").text().to_owned(),
        method: node.field("method").text().to_owned(),
        uri: node.field("uri").bytes(),
        version: node.field("version").text().to_owned(),
        headers: headers.iter().map(header).collect(),
        tier,
    }
}

/// A piece of YAML. Scalars stay text: `1000` is no number here.
#[derive(Debug)]
enum Node {
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// What a missing field is.
static EMPTY: Node = Node::Text(String::new());

impl Node {
    fn read(text: &str) -> Node {
        let mut events = Parser::new_from_str(text).map(|event| event.unwrap().0);
        loop {
            match events.next() {
                Some(Event::StreamStart | Event::DocumentStart(_)) => {}
                Some(first) => return Node::build(first, &mut events),
                None => panic!("an empty document"),
            }
        }
    }

    fn build<'a>(first: Event<'a>, rest: &mut impl Iterator<Item = Event<'a>>) -> Node {
        match first {
            Event::Scalar(text, ..) => Node::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut list = Vec::new();
                loop {
                    match rest.next().unwrap() {
                        Event::SequenceEnd => return Node::List(list),
                        event => list.push(Node::build(event, rest)),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut map = Vec::new();
                loop {
                    match rest.next().unwrap() {
                        Event::MappingEnd => return Node::Map(map),
                        Event::Scalar(key, ..) => {
                            let value = rest.next().unwrap();
                            map.push((key.into_owned(), Node::build(value, rest)));
                        }
                        other => panic!("a key that is {other:?}"),
                    }
                }
            }
            other => panic!("{other:?} where a value should be"),
        }
    }

    fn field(&self, name: &str) -> &Node {
        let Node::Map(map) = self else { panic!("no map: {self:?}") };
        map.iter().find(|(key, _)| key == name).map_or(&EMPTY, |(_, value)| value)
    }

    fn text(&self) -> &str {
        let Node::Text(text) = self else { panic!("no text: {self:?}") };
        text
    }

    /// `"\xff"` means the byte; other characters mean their UTF-8 form.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for c in self.text().chars() {
            match u8::try_from(u32::from(c)) {
                Ok(byte) => bytes.push(byte),
                Err(_) => bytes.extend(c.to_string().bytes()),
            }
        }
        bytes
    }
}
