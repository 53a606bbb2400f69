package convert

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

var (
	// separator divides the documents of a file.
	separator = regexp.MustCompile(`(?m)^---(?:[ \t][^\n]*)?\n?`)
	// content is what a document has beside blank lines and comments.
	content = regexp.MustCompile(`(?m)^[ \t]*[^ \t\n#]`)
	// dashed is a field that the proposals wrote as the element of a list, which is no YAML:
	//   - type: RegistryDisk:v1alpha
	//     - source:
	//       name: IMAGE
	dashed = regexp.MustCompile(`(?m)^( +)- (source|target):[ \t]*$`)
)

// Manifests returns a file with its documents in the present form, and notes about what
// it left out or misses. Documents without a disk of the old form stay as they are,
// byte by byte. The error names all disks without a present form.
func Manifests(text []byte) (converted []byte, notes []string, err error) {
	var errs []error
	number := 0
	document := func(text []byte) {
		if len(content.Find(text)) == 0 {
			converted = append(converted, text...)
			return
		}
		number++
		c := conversion{}
		result, err := c.document(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("document %d: %w", number, err))
		}
		for _, n := range c.notes {
			notes = append(notes, fmt.Sprintf("document %d: %s", number, n))
		}
		converted = append(converted, result...)
	}
	from := 0
	for _, at := range separator.FindAllIndex(text, -1) {
		if at[0] > 0 { // else no document precedes it
			document(text[from:at[0]])
		}
		converted = append(converted, text[at[0]:at[1]]...)
		from = at[1]
	}
	document(text[from:])
	return converted, notes, errors.Join(errs...)
}

// conversion rewrites one document.
type conversion struct{ notes []string }

func (c *conversion) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// document returns a document in the present form.
func (c *conversion) document(text []byte) ([]byte, error) {
	object := decode(text)
	if object == nil {
		object = decode(dashed.ReplaceAll(text, []byte("$1$2:")))
	}
	spec, at := specOf(object)
	if spec == nil {
		return text, nil
	}
	if err := c.object(object, spec, at); err != nil {
		return nil, err
	}
	result, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	return append([]byte(comment(string(text))), result...), nil
}

// decode returns the object in a document; nil if there is none.
func decode(text []byte) map[string]any {
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil
	}
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &object); err != nil {
		return nil
	}
	return object
}

// comment returns the comments at the beginning of a document.
func comment(text string) string {
	end := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		end += len(line)
	}
	return text[:end]
}
