package everything

// formSchema has a field of each kind that a form may have: plain strings and
// with formats, a boolean, numbers with bounds, and every way to write a choice.
const formSchema = `{
  "type": "object",
  "properties": {
    "name": {"type": "string", "title": "String", "description": "Your name"},
    "check": {"type": "boolean", "title": "Boolean", "description": "Agree to the terms"},
    "firstLine": {"type": "string", "title": "String with default", "description": "A first line of a story that you like", "default": "It was a dark and stormy night."},
    "email": {"type": "string", "title": "String with email format", "format": "email", "description": "Your email address"},
    "homepage": {"type": "string", "title": "String with uri format", "format": "uri", "description": "Your web page"},
    "birthdate": {"type": "string", "title": "String with date format", "format": "date", "description": "Your birthday"},
    "integer": {"type": "integer", "title": "Integer", "description": "A whole number that you like", "minimum": 1, "maximum": 100, "default": 42},
    "number": {"type": "number", "title": "Number in range 0-1000", "description": "Any number that you like", "minimum": 0, "maximum": 1000, "default": 3.14},
    "untitledSingleSelectEnum": {"type": "string", "title": "Single choice without titles", "description": "Which friend", "enum": ["Monica", "Rachel", "Joey", "Chandler", "Ross", "Phoebe"], "default": "Monica"},
    "untitledMultipleSelectEnum": {"type": "array", "title": "Multiple choice without titles", "description": "Which instruments", "minItems": 1, "maxItems": 3, "items": {"type": "string", "enum": ["Guitar", "Piano", "Violin", "Drums", "Bass"]}, "default": ["Guitar"]},
    "titledSingleSelectEnum": {"type": "string", "title": "Single choice with titles", "description": "Which hero", "oneOf": [{"const": "hero-1", "title": "Superman"}, {"const": "hero-2", "title": "Green Lantern"}, {"const": "hero-3", "title": "Wonder Woman"}], "default": "hero-1"},
    "titledMultipleSelectEnum": {"type": "array", "title": "Multiple choice with titles", "description": "Which fish", "minItems": 1, "maxItems": 3, "items": {"anyOf": [{"const": "fish-1", "title": "Tuna"}, {"const": "fish-2", "title": "Salmon"}, {"const": "fish-3", "title": "Trout"}]}, "default": ["fish-1"]},
    "legacyTitledEnum": {"type": "string", "title": "Single choice with titles, the old way", "description": "Which pet", "enum": ["pet-1", "pet-2", "pet-3", "pet-4", "pet-5"], "enumNames": ["Cats", "Dogs", "Birds", "Fish", "Reptiles"], "default": "pet-1"}
  },
  "required": ["name"]
}`
