package fieldstest

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Leaves returns the fields of a type of KubeVirt's, by their paths, that have no fields of its package below them. A
// type of Kubernetes, a map and an empty object count as one field.
func Leaves(of reflect.Type) map[string]reflect.Type { return leaves("", of, of.PkgPath()) }

func leaves(at string, of reflect.Type, within string) map[string]reflect.Type {
	of, at = Element(of, at)
	below := FieldsOf(of)
	if len(below) == 0 || of.PkgPath() != within {
		return map[string]reflect.Type{at: of}
	}
	all := map[string]reflect.Type{}
	for name, field := range below {
		maps.Copy(all, leaves(strings.TrimPrefix(at+"."+name, "."), field, within))
	}
	return all
}

// object is the first part of a field's path, which the page's lines begin with.
var object = regexp.MustCompile(`^(domain\.(devices\.)?|configuration\.)?[^.]+\.`)

// Block lists fields in a line for each object, with the names in braces.
func Block(indent string, paths []string) string {
	byObject := map[string][]string{}
	for _, path := range slices.Sorted(slices.Values(paths)) {
		i := len(object.FindString(path))
		byObject[path[:i]] = append(byObject[path[:i]], path[i:])
	}
	var b strings.Builder
	for _, prefix := range slices.Sorted(maps.Keys(byObject)) {
		names := byObject[prefix]
		if len(names) == 1 {
			b.WriteString(indent + prefix + names[0] + "\n")
			continue
		}
		line := indent + prefix + "{"
		for i, name := range names {
			end := map[bool]string{true: "}\n", false: ","}[i == len(names)-1]
			if len(line)+len(name)+len(end) > 100 {
				b.WriteString(line + "\n")
				line = indent + "  "
			}
			line += name + end
		}
		b.WriteString(line)
	}
	return b.String()
}
