package vmspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// DecodeVMI decodes the JSON of a VMI's spec. It returns every problem with its
// path from "spec" on: unknown, duplicate, unsupported and malformed fields, and
// fields that contradict each other. The spec is nil if there is a problem.
func DecodeVMI(text []byte) (*kubevirt.VirtualMachineInstanceSpec, field.ErrorList) {
	root := field.NewPath("spec")
	var tree any
	duplicate, err := kjson.UnmarshalStrict(text, &tree)
	if err != nil {
		return nil, field.ErrorList{invalid(root, field.OmitValueType{}, "%s", notJSON(err))}
	}
	problems := strictProblems(root, duplicate)
	problems = append(problems, without(unknownFields(root, tree), problems)...)
	problems = append(problems, without(checkTree(root, tree), problems)...)
	if len(problems) > 0 {
		return nil, problems
	}
	vmi := new(fields)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, vmi); err != nil {
		return nil, field.ErrorList{invalid(root, field.OmitValueType{}, "%s", excerpt(err.Error()))}
	}
	spec := (*kubevirt.VirtualMachineInstanceSpec)(vmi)
	if problems := checkVMI(root, spec); len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

// fields is the API's type without its own decoder, which is neither strict nor
// case sensitive.
type fields kubevirt.VirtualMachineInstanceSpec

// unknownFields tells fields that the API doesn't have from those that aren't
// supported here. It decodes the tree without its values: some, unchecked, take
// the types of the API very long, such as a quantity with a large exponent.
func unknownFields(root *field.Path, tree any) field.ErrorList {
	text, err := json.Marshal(skeleton(tree))
	if err != nil {
		return nil // nor is it a tree for checkTree
	}
	strict, _ := kjson.UnmarshalStrict(text, new(fields)) // an error is checkTree's to name
	return strictProblems(root, strict)
}

// skeleton is a decoded JSON value with null for all that isn't an object or a list.
func skeleton(value any) any {
	switch value := value.(type) {
	case map[string]any:
		bones := make(map[string]any, len(value))
		for key, v := range value {
			bones[key] = skeleton(v)
		}
		return bones
	case []any:
		bones := make([]any, len(value))
		for i, v := range value {
			bones[i] = skeleton(v)
		}
		return bones
	}
	return nil
}

func notJSON(err error) string {
	if isSyntax, offset := kjson.SyntaxErrorOffset(err); isSyntax {
		return fmt.Sprintf("not JSON at byte %d: %s", offset, excerpt(err.Error()))
	}
	return "not JSON: " + excerpt(err.Error())
}

// strictProblems are the decoder's findings: unknown and duplicate fields.
func strictProblems(root *field.Path, strict []error) field.ErrorList {
	var problems field.ErrorList
	for _, err := range strict {
		var at kjson.FieldError
		if !errors.As(err, &at) {
			problems = append(problems, refused(root, "%s", excerpt(err.Error())))
			continue
		}
		kind, _, _ := strings.Cut(err.Error(), ` "`)
		problems = append(problems, refused(root.Child(at.FieldPath()), "%s", kind))
	}
	return problems
}

// without returns the problems at paths where there isn't one already.
func without(problems, have field.ErrorList) field.ErrorList {
	known := sets.New[string]()
	for _, p := range have {
		known.Insert(p.Field)
	}
	return slices.DeleteFunc(problems, func(p *field.Error) bool { return known.Has(p.Field) })
}

// checkTree holds a decoded JSON value against the table of what is supported.
func checkTree(root *field.Path, tree any) field.ErrorList {
	c := treeCheck{patterns: patterns()}
	c.value(root, "", tree)
	return c.problems
}

type treeCheck struct {
	patterns map[string]takes
	problems field.ErrorList
}

func (c *treeCheck) value(at *field.Path, pattern string, value any) {
	if value == nil && pattern != "" {
		return // null is unset
	}
	takes, ok := c.patterns[pattern]
	if !ok {
		c.problems = append(c.problems, unsupported(at, pattern))
		return
	}
	if problem := takes(at, value); problem != nil {
		c.problems = append(c.problems, problem)
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			c.value(at.Child(key), strings.TrimPrefix(pattern+"."+key, "."), value[key])
		}
	case []any:
		for i, element := range value {
			c.value(at.Index(i), pattern+"[]", element)
		}
	}
}

func unsupported(at *field.Path, pattern string) *field.Error {
	if way := wayOut(pattern); way != "" {
		return refused(at, "not supported; %s", way)
	}
	return refused(at, "not supported")
}
