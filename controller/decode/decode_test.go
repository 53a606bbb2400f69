package decode_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/internal/bounds"
)

// count counts the elements of all lists of a decoded value.
func count(value any) (n int) {
	switch value := value.(type) {
	case map[string]any:
		for _, part := range value {
			n += count(part)
		}
	case []any:
		n = len(value)
		for _, part := range value {
			n += count(part)
		}
	}
	return n
}

func texts() []string {
	return []string{
		`null`, `[]`, `[ ]`, `[0]`, `[[]]`, `[[],[]]`, `[{}, {"a": []}]`, `{"a": [1, "[,]", "\"[1,2]"], "b": {"c": [null, true]}}`,
		`["\\"]`, `["\\", "\\\"", ["x"]]`, ` [ 1 , [ 2 , 3 ] ] `, `{"a":1,"b":2}`, `"[1,2]"`, `[-1.5e3,[[[]]]]`,
	}
}

// TestElements: the number is that of the decoded value.
func TestElements(t *testing.T) {
	for _, text := range texts() {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if got, want := decode.Elements([]byte(text)), count(value); got != want {
			t.Errorf("%s has %d elements, want %d", text, got, want)
		}
	}
}

// TestJSON: text with too many elements is not decoded.
func TestJSON(t *testing.T) {
	text := func(n int) []byte { return []byte("[0" + strings.Repeat(",0", n-1) + "]") }
	var all []int
	if err := decode.JSON(text(bounds.Elements), &all); err != nil || len(all) != bounds.Elements {
		t.Errorf("as many as allowed: %d, %v", len(all), err)
	}
	all = nil
	if err := decode.JSON(text(bounds.Elements+1), &all); err == nil || all != nil || !strings.Contains(err.Error(), "have 8193 elements together") {
		t.Errorf("one more: %d, %v", len(all), err)
	}
}

// FuzzElements: what decodes has as many elements as are counted, except for keys that are there twice.
func FuzzElements(f *testing.F) {
	for _, text := range texts() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := decode.Elements(text)
		var value any
		if json.Unmarshal(text, &value) == nil && n < count(value) {
			t.Errorf("%q has %d elements, counted %d", text, count(value), n)
		}
	})
}
