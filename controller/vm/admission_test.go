package vm

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/shim/fields"
)

func decoded(t *testing.T, text string) any {
	t.Helper()
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

const template = `"template": {"metadata": {"labels": {"app": "web"}}, "spec": {
	"domain": {"memory": {"guest": "64Mi"}, "devices": {}},
	"volumes": [{"name": "root", "containerDisk": {"image": "x"}}]}}`

// sized leaves the size to an instance type.
const sized = `"template": {"spec": {"domain": {"devices": {}}, "volumes": [{"name": "root", "containerDisk": {"image": "x"}}]}}`

func TestCheck(t *testing.T) {
	for _, tt := range []struct{ spec, want string }{
		{`{"runStrategy": "Always", ` + template + `}`, ""},
		{`{"running": true, ` + template + `}`, ""},
		{`{"running": true, "runStrategy": "Always", ` + template + `}`, "spec.running: runStrategy is given too"},
		{`{` + template + `}`, "spec.runStrategy: Required value"},
		{`{"runStrategy": "Sometimes", ` + template + `}`, "spec.runStrategy: Unsupported value"},
		{`{"runStrategy": "Always"}`, "spec.template.spec: Required value"},
		{`{"runStrategy": "Always", ` + sized + `}`, ""},
		{`{"runStrategy": "Always", "instancetype": {"name": "large"}, ` + sized + `}`, ""},
		{`{"runStrategy": "Always", "instancetype": {"name": "large"}, ` + template + `}`,
			"VM field(s) spec.template.spec.domain.memory conflicts with selected instance type"},
		{`{"runStrategy": "Always", "instancetype": {}, ` + sized + `}`, "spec.instancetype.name: Required value"},
		{`{"runStrategy": "Always", "preference": {"kind": "virtualmachinepreferences"}, ` + template + `}`,
			"spec.preference.name: Required value"},
		{`{"runStrategy": "Always", "preference": {"name": "x", "kind": "Other"}, ` + template + `}`,
			"spec.preference.kind: Unsupported value"},
		{`{"runStrategy": "Always", "dataVolumeTemplates": [], ` + template + `}`, ""},
		{`{"runStrategy": "Always", "dataVolumeTemplates": [{"metadata": {"name": "x"}, "spec": {"pvc": {}, "source": {"blank": {}}}}], ` + template + `}`,
			`spec.dataVolumeTemplates[0].metadata.name: Invalid value: "x": no volume of the template names it`},
		{`7`, "spec: must be an object"},
		{`null`, "spec: Required value"},
	} {
		r := &admission.Review{Object: admission.Tree{"spec": decoded(t, tt.spec)}, Meta: metav1.ObjectMeta{Name: "web"}}
		var got string
		for _, p := range check(r) {
			got += fields.Sentence(p) + "\n"
		}
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s:\n%s\nwant %s", tt.spec, got, tt.want)
		}
		if tt.want == "" && r.VMI == nil {
			t.Errorf("%s: no spec of the template", tt.spec)
		}
	}
}

// TestRevisions: another instance type cannot be named with the revision of the
// former one.
func TestRevisions(t *testing.T) {
	of := func(name, revision string) admission.Tree {
		return admission.Tree{"spec": admission.Tree{"instancetype": admission.Tree{"name": name, "revisionName": revision}}}
	}
	for _, tt := range []struct {
		name, revision string
		refused        bool
	}{
		{"small", "r1", false}, {"large", "r1", true}, {"large", "r2", false}, {"large", "", false},
	} {
		problems := rules().CheckUpdate(&admission.Review{Old: of("small", "r1"), Object: of(tt.name, tt.revision)})
		if (len(problems) > 0) != tt.refused {
			t.Errorf("%s %s: %v", tt.name, tt.revision, problems)
		}
	}
}

// TestKind: the descriptor has what the API server and other parts go by.
func TestKind(t *testing.T) {
	if k := Kind(); k.Name() != "VirtualMachine" || k.Resource() != "virtualmachines" || k.SetUp == nil || k.Admission.Instance {
		t.Errorf("%s, %s", k.Name(), k.Resource())
	}
}
