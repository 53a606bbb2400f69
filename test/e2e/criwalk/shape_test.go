package criwalk

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unsteady are fields that come and go: what containerd's collector finds out within ten seconds,
// counters that may be 0, and what depends on the machine's kernel and cgroups.
var unsteady = regexp.MustCompile(`usage_nano_cores|writable_layer\.(timestamp|(used_bytes|inodes_used)\.value)|page_faults\.value|` +
	`\.(rx|tx)_|process_count|\.swap($|\.)|swap_limit|\.psi|\.io($|\.)|\.unified`)

// shape is which fields of a message are filled, one line each: with their values where those are
// words, with their number where they are lists. Numbers are left out, since they are sizes and times,
// but for exit codes and limits.
func shape(m proto.Message, mask func(string) string) []string {
	lines := map[string]bool{}
	walkMessage(m.ProtoReflect(), "", func(path string, value any) {
		if unsteady.MatchString(path) {
			return
		}
		if text, ok := value.(string); ok && text != "" {
			path += " = " + mask(text)
		}
		lines[path] = true
	})
	return slices.Sorted(maps.Keys(lines))
}

func walkMessage(m protoreflect.Message, path string, visit func(string, any)) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := path + "." + string(f.Name())
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				visit(fmt.Sprintf("%s{%s}", at, k), nil)
				return true
			})
		case f.IsList():
			visit(fmt.Sprintf("%s: %d", at, v.List().Len()), nil)
			for i := range v.List().Len() {
				walkField(f, v.List().Get(i), at+"[]", visit)
			}
		default:
			walkField(f, v, at, visit)
		}
		return true
	})
}

func walkField(f protoreflect.FieldDescriptor, v protoreflect.Value, path string, visit func(string, any)) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		visit(path, nil)
		walkMessage(v.Message(), path, visit)
	case protoreflect.EnumKind:
		visit(path, string(f.Enum().Values().ByNumber(v.Enum()).Name()))
	case protoreflect.StringKind:
		visit(path, v.String())
	default:
		if f.Name() == "exit_code" || strings.Contains(path, ".resources.linux.") {
			visit(path, v.String())
			return
		}
		visit(path, nil)
	}
}
