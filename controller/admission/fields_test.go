package admission_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/util/yaml"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	manifests "github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields/fieldstest"
)

// fieldsPage is the page that lists the state of each field.
const fieldsPage = "../../docs/fields.md"

// switches are the controller's flags, and the fields of the KubeVirt object, that let instances have more
// fields. A manifest in testdata/switched has a switch's name.
func switches(t *testing.T) map[string]admission.Webhooks {
	t.Helper()
	return map[string]admission.Webhooks{
		"-host-disks":       gated(manifests.Gates{HostDisks: true}),
		"-downward-metrics": gated(manifests.Gates{DownwardMetrics: true}),
		"configuration.network.binding": configured(t, kubevirt.KubeVirtConfiguration{
			NetworkConfiguration: &kubevirt.NetworkConfiguration{Binding: map[string]kubevirt.InterfaceBindingPlugin{
				"macvtap": {DomainAttachmentType: kubevirt.Tap},
			}},
		}),
	}
}

// remedy is what a refusal says of a switch.
func remedy(of string) string {
	if strings.HasPrefix(of, "-") {
		return "set " + of + " of nodevirt-controller"
	}
	return of + " of the object KubeVirt"
}

// states are the leaf fields of an instance's spec, by what admission does with them.
type states struct {
	works             []string
	switched, refused map[string][]string // by the flag, and by the reason
}

// TestFields sets every leaf field of KubeVirt's type. The webhooks must take it in a
// manifest of testdata, or refuse it by its path. With -update the test writes the page.
func TestFields(t *testing.T) {
	r := newRig(t)
	set := map[string]bool{}
	for path, text := range files(t, "testdata/taken") {
		object := manifest(t, text, "")
		if strings.Contains(text, "kind: VirtualMachineInstance\n") && r.ask(t, admission.PathValidate, object, nil).Allowed {
			maps.Copy(set, fieldsSet(t, path, object))
		}
	}
	behind := map[string]string{} // the switches of fields
	for flag, cluster := range switches(t) {
		path := "testdata/switched/" + strings.TrimPrefix(flag, "-") + ".yaml"
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		object := manifest(t, string(text), "")
		if said := refusal(t, r.ask(t, admission.PathValidate, object, nil)); !strings.Contains(said, remedy(flag)) {
			t.Errorf("%s: the refusal does not name the switch: %s", path, said)
		}
		r := newRigIn(t, cluster)
		if answer := r.ask(t, admission.PathValidate, r.defaulted(t, object, nil), nil); !answer.Allowed {
			t.Errorf("%s: %s", path, answer.Result.Message)
		}
		for path := range fieldsSet(t, path, object) {
			behind[path] = flag
		}
	}
	s := states{switched: map[string][]string{}, refused: map[string][]string{}}
	for path, of := range fieldstest.Leaves(reflect.TypeFor[kubevirt.VirtualMachineInstanceSpec]()) {
		switch flag := behind[path]; {
		case set[path]:
			s.works = append(s.works, path)
		case flag != "":
			s.switched[flag] = append(s.switched[flag], path)
		default:
			why, refused := r.reason(t, path, of)
			if !refused {
				t.Errorf("%s: no manifest in testdata/taken or testdata/switched sets it, and admission does not say that it is not supported: %s", path, why)
			}
			s.refused[why] = append(s.refused[why], path)
		}
	}
	s.compare(t)
}

// fieldsSet returns the paths that have a value other than Go's zero.
func fieldsSet(t *testing.T, file string, object []byte) map[string]bool {
	t.Helper()
	var tree struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(object, &tree); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	set := map[string]bool{}
	var visit func(at string, value any)
	visit = func(at string, value any) {
		switch value := value.(type) {
		case map[string]any:
			set[at] = true
			for name, below := range value {
				visit(strings.TrimPrefix(at+"."+name, "."), below)
			}
		case []any:
			for _, element := range value {
				visit(at+"[]", element)
			}
		case nil:
		default:
			if !reflect.ValueOf(value).IsZero() {
				set[at] = true
			}
		}
	}
	visit("", tree.Spec)
	return set
}

// notSupported is how admission refuses a field that a node does not support.
var notSupported = regexp.MustCompile(`^(?:true: )?not supported(?:; use false or leave it out)?(?:(?:; |: )(.*))?$`)

// reason sets a field that nothing else is beside. It returns why admission refuses it.
func (r rig) reason(t *testing.T, path string, of reflect.Type) (why string, refused bool) {
	t.Helper()
	value := map[reflect.Kind]string{reflect.Bool: "true", reflect.String: `"x"`, reflect.Struct: "{}", reflect.Map: "{}"}[of.Kind()]
	if value == "" {
		value = "1"
	}
	object := `{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "a"}, "spec": ` +
		fieldstest.JSONAt(path, value) + `}`
	answer := r.ask(t, admission.PathValidate, []byte(object), nil)
	why = refusal(t, answer)
	at := "spec." + strings.ReplaceAll(path, "[]", "[0]")
	for _, cause := range answer.Result.Details.Causes {
		if m := notSupported.FindStringSubmatch(cause.Message); m != nil && strings.HasPrefix(at, cause.Field) {
			return m[1], true
		}
	}
	return why, false
}

// compare compares the page's lists with the states.
func (s states) compare(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(fieldsPage)
	if err != nil {
		t.Fatal(err)
	}
	marks := regexp.MustCompile(`(?s)(<!-- fields: begin[^>]*-->\n)(.*?)(<!-- fields: end -->\n)`)
	at := marks.FindSubmatchIndex(text)
	if at == nil {
		t.Fatalf("%s has no marks", fieldsPage)
	}
	want, have := s.page(), string(text[at[4]:at[5]])
	if golden.FlagUpdate() {
		text = slices.Concat(text[:at[4]], []byte(want), text[at[5]:])
		if err := os.WriteFile(filepath.FromSlash(fieldsPage), text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if difference := diff.Diff(want, have); difference != "" {
		t.Errorf("%s: run with -update: (-code +page)\n%s", fieldsPage, difference)
	}
}

// page returns the counts and the lists as Markdown.
func (s states) page() string {
	count := func(of map[string][]string) (n int) {
		for _, paths := range of {
			n += len(paths)
		}
		return n
	}
	behind, refused := count(s.switched), count(s.refused)
	var b strings.Builder
	fmt.Fprintf(&b, "\nOf %d fields, %d work, %d need a switch of the cluster, and admission refuses %d.\n\n## Works\n",
		len(s.works)+behind+refused, len(s.works), behind, refused)
	b.WriteString("\n```text\n" + fieldstest.Block("", s.works) + "```\n\n## Needs a flag of the controller, or the KubeVirt object\n\n```text\n")
	for _, flag := range slices.Sorted(maps.Keys(s.switched)) {
		b.WriteString(flag + "\n" + fieldstest.Block("  ", s.switched[flag]))
	}
	b.WriteString("```\n\n## Refused\n\n```text\n")
	for _, why := range slices.Sorted(maps.Keys(s.refused)) {
		b.WriteString(cmp.Or(why, "not implemented") + "\n" + fieldstest.Block("  ", s.refused[why]))
	}
	return b.String() + "```\n\n"
}
