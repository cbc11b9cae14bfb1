//! The typed conversation that goes into a template, and the segments that come out.

/// Who speaks in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions that stand above the conversation.
    System,
    /// The person asking.
    User,
    /// The model.
    Assistant,
    /// The result of a tool the model called.
    Tool,
}

impl Role {
    /// The name templates know this role by.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentPart {
    /// Text. No sequence of characters in it has a meaning of its own: a media marker written here is text.
    Text(String),
    /// A picture stands here. Pictures are counted through the whole conversation, from 0.
    Picture,
}

/// One message of a conversation. Its parts are joined without anything in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said and shown, in order.
    pub content: Vec<ContentPart>,
}

impl ChatMessage {
    /// A message that is text only.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        ChatMessage { role, content: vec![ContentPart::Text(text.into())] }
    }

    /// How many pictures the message holds.
    #[must_use]
    pub fn pictures(&self) -> usize {
        self.content.iter().filter(|part| matches!(part, ContentPart::Picture)).count()
    }
}

/// A piece of a rendered prompt. Neighbouring text is one segment and no text segment is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Text to tokenize, special tokens included.
    Text(String),
    /// The picture of this index in the conversation, from 0.
    Picture(usize),
}

/// A message as the renderers see it: pictures are marks inside the text.
#[derive(Debug, Clone)]
pub(super) struct FlatMessage {
    pub role: Role,
    pub content: String,
}
