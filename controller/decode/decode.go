// Package decode decodes the JSON that users write, such as the body of a subresource or the data of a ControllerRevision. It
// owns the bound of the elements of lists, which package admission shares: in the types of the API an element can have a
// hundred times the size of its JSON. It leaves to its callers how long the text may be.
package decode

import (
	"encoding/json"
	"fmt"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// JSON decodes a text, unless its lists have too many elements.
func JSON(text []byte, into any) error {
	if err := Check(text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// Check returns an error if the lists of a JSON text have more than [bounds.Elements] elements together.
func Check(text []byte) error {
	if n := Elements(text); n > bounds.Elements {
		return fmt.Errorf("the lists have %d elements together, and at most %d are supported", n, bounds.Elements)
	}
	return nil
}

// Elements counts the elements of all lists of a JSON text, without decoding them. Of text that is not JSON, the number is
// that up to a place at which decoding fails, or more.
func Elements(text []byte) (n int) {
	var lists []bool // of the values that enclose the present one: whether each is a list
	first := false   // of a list
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t', '\n', '\r':
			continue
		case ']', '}':
			if len(lists) > 0 {
				lists = lists[:len(lists)-1]
			}
			first = false
			continue
		case ',':
			if len(lists) > 0 && lists[len(lists)-1] {
				n++
			}
			continue
		case '"':
			i = end(text, i)
		}
		if first {
			n++
		}
		first = false
		if c := text[min(i, len(text)-1)]; c == '[' || c == '{' {
			lists = append(lists, c == '[')
			first = c == '['
		}
	}
	return n
}

// end returns where the string ends that begins at a place of a text.
func end(text []byte, at int) int {
	for i := at + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text)
}
