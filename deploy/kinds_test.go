package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"
	exportapi "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/kind"
	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/internal/bounds"
)

// manifest is what the tests read of the objects in kubernetes/: roles, webhooks and
// policies.
type manifest struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Rules    []rule
	RoleRef  struct{ Name string }
	Subjects []struct{ Name string }
	Webhooks []struct {
		Name  string
		Rules []rule
	}
	Spec struct {
		MatchConstraints struct{ ResourceRules []rule }
		MatchConditions  []struct{ Expression string }
		Validations      []struct{ Expression string }
	}
}

type rule struct {
	APIGroups, APIVersions, Resources, Verbs []string
}

// objects returns the objects of a file, by kind and name.
func objects(t *testing.T, file string) map[string]manifest {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]manifest{}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var o manifest
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[o.Kind+" "+o.Metadata.Name] = o
	}
}

// verbs returns "GROUP RESOURCE: VERBS" for each resource in rules that is of one of
// our kinds.
func verbs(rules []rule) []string {
	ours := map[string]bool{}
	for _, k := range kinds.All() {
		ours[k.Version.Group] = true
	}
	by := map[string][]string{}
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				if ours[group] {
					by[group+" "+resource] = append(by[group+" "+resource], r.Verbs...)
				}
			}
		}
	}
	var all []string
	for _, resource := range slices.Sorted(maps.Keys(by)) {
		all = append(all, resource+": "+strings.Join(slices.Sorted(slices.Values(by[resource])), ", "))
	}
	return all
}

// want makes rules of the table, as verbs returns those of a file.
type want []rule

func (w *want) add(k kind.Kind, subresource string, verbs ...string) {
	if len(verbs) > 0 {
		*w = append(*w, rule{APIGroups: []string{k.Version.Group}, Resources: []string{k.Resource() + subresource}, Verbs: verbs})
	}
}

// TestControllerRoleOfKinds holds the controller's role against the table: what the
// descriptors ask for.
func TestControllerRoleOfKinds(t *testing.T) {
	var controller want
	for _, k := range kinds.All() {
		controller.add(k, "", k.Access.Object...)
		controller.add(k, "/status", k.Access.Status...)
		controller.add(k, "/finalizers", k.Access.Finalizers...)
	}
	role := objects(t, "kubernetes/rbac.yaml")["ClusterRole nodevirt-controller"]
	if diff := cmp.Diff(verbs(controller), verbs(role.Rules)); diff != "" {
		t.Errorf("rbac.yaml: nodevirt-controller differs from the table of kinds (-table +file):\n%s", diff)
	}
}

// TestWebhooksOfKinds holds the webhooks against the table: both decide on every kind.
func TestWebhooksOfKinds(t *testing.T) {
	var want []string
	for _, k := range kinds.All() {
		want = append(want, fmt.Sprintf("%s/%s %s", k.Version.Group, k.Version.Version, k.Resource()))
	}
	slices.Sort(want)
	for name, o := range objects(t, "kubernetes/webhooks.yaml") {
		var have []string
		for _, w := range o.Webhooks {
			if w.Name == "evict.nodevirt.io" || w.Name == "upload.nodevirt.io" { // of pods and PVCs
				continue
			}
			for _, r := range w.Rules {
				for _, resource := range r.Resources {
					have = append(have, fmt.Sprintf("%s/%s %s", r.APIGroups[0], r.APIVersions[0], resource))
				}
			}
		}
		slices.Sort(have)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("webhooks.yaml: %s differs from the table of kinds (-table +file):\n%s", name, diff)
		}
	}
}

// TestStatusPolicyOfKinds: the policy that reserves statuses for the controller
// names every kind with a status.
func TestStatusPolicyOfKinds(t *testing.T) {
	var want, have []string
	for _, k := range kinds.All() {
		if k.CRD.Status {
			want = append(want, k.Resource()+"/status")
		}
	}
	policy := objects(t, "kubernetes/policies.yaml")["ValidatingAdmissionPolicy nodevirt-status"]
	for _, r := range policy.Spec.MatchConstraints.ResourceRules {
		have = append(have, r.Resources...)
	}
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("policies.yaml: nodevirt-status differs from the table of kinds (-table +file):\n%s", diff)
	}
}

// TestMetadataPolicyOfKinds: the policy that bounds metadata names every kind that the controller keeps in memory, and has the
// bounds of the code.
func TestMetadataPolicyOfKinds(t *testing.T) {
	want := []string{"persistentvolumeclaims", "persistentvolumeclaims/status", "pods", "pods/status"}
	for _, k := range kinds.All() {
		if k.Cached {
			want = append(want, k.Resource())
		}
	}
	policy := objects(t, "kubernetes/policies.yaml")["ValidatingAdmissionPolicy nodevirt-metadata"]
	var have []string
	for _, r := range policy.Spec.MatchConstraints.ResourceRules {
		have = append(have, r.Resources...)
	}
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("policies.yaml: nodevirt-metadata differs from the table of kinds (-table +file):\n%s", diff)
	}
	var numbers []string
	for _, v := range policy.Spec.Validations {
		numbers = append(numbers, regexp.MustCompile(`<= (\d+)`).FindStringSubmatch(v.Expression)[1])
	}
	bound := []string{
		strconv.Itoa(bounds.Labels), strconv.Itoa(bounds.Finalizers), strconv.Itoa(bounds.Owners), strconv.Itoa(bounds.Owner),
		strconv.Itoa(bounds.Volumes), strconv.Itoa(bounds.Containers),
	}
	if diff := cmp.Diff(bound, numbers); diff != "" {
		t.Errorf("policies.yaml: nodevirt-metadata has other bounds than the code (-code +file):\n%s", diff)
	}
	if keeps := policy.Spec.MatchConditions[0].Expression; !strings.Contains(keeps, fmt.Sprintf(`["%s", "%s", "%s"]`, pod.LabelValue, pod.AttachmentLabelValue, exportapi.App)) {
		t.Errorf("policies.yaml: nodevirt-metadata is about pods with other labels: %s", keeps)
	}
}

// TestCRDPolicyOfKinds: a policy protects every CRD.
func TestCRDPolicyOfKinds(t *testing.T) {
	var want []string
	for _, k := range kinds.All() {
		want = append(want, k.Resource()+"."+k.Version.Group)
	}
	policy := objects(t, "kubernetes/policies.yaml")["ValidatingAdmissionPolicy nodevirt-crds"]
	if len(policy.Spec.MatchConditions) != 1 {
		t.Fatalf("policies.yaml: nodevirt-crds has %d conditions, want one", len(policy.Spec.MatchConditions))
	}
	have := regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(policy.Spec.MatchConditions[0].Expression, -1)
	var names []string
	for _, m := range have {
		names = append(names, m[1])
	}
	slices.Sort(want)
	slices.Sort(names)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("policies.yaml: nodevirt-crds differs from the table of kinds (-table +file):\n%s", diff)
	}
}
