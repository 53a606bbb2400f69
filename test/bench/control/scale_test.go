package control

import (
	"math"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/bench/report"
)

// TestAudit: of the log only the controller's requests count, and a repeated watch is one.
func TestAudit(t *testing.T) {
	const log = `{"userAgent":"nodevirt-controller/v1","verb":"create","requestURI":"/api/v1/namespaces/a/pods","objectRef":{"resource":"pods","namespace":"a"}}
{"userAgent":"nodevirt-controller/v1","verb":"patch","objectRef":{"resource":"virtualmachines","subresource":"status","namespace":"a"}}
{"userAgent":"nodevirt-controller/v1","verb":"patch","objectRef":{"resource":"virtualmachines","subresource":"status","namespace":"a"}}
{"userAgent":"nodevirt-controller/v1","verb":"get","objectRef":{"resource":"virtualmachines","namespace":"a"}}
{"userAgent":"nodevirt-controller/v1","verb":"patch","objectRef":{"resource":"virtualmachineinstances","namespace":"b"}}
{"userAgent":"kube-scheduler/v1","verb":"create","objectRef":{"resource":"pods","subresource":"binding","namespace":"a"}}
{"userAgent":"nodevirt-controller/v1","verb":"watch","requestURI":"/api/v1/pods?labelSelector=x&resourceVersion=1&watch=true","objectRef":{"resource":"pods"}}
{"userAgent":"nodevirt-controller/v1","verb":"watch","requestURI":"/api/v1/pods?labelSelector=x&resourceVersion=2&watch=true","objectRef":{"resource":"pods"}}
{"userAgent":"nodevirt-controller/v1","verb":"watch","requestURI":"/api/v1/pods?labelSelector=y&resourceVersion=2&watch=true","objectRef":{"resource":"pods"}}
{"userAgent":"nodevirt-contr`
	got := audit{map[string]requests{}, map[string]bool{}}
	assert.NilError(t, got.read(strings.NewReader(log)))
	want := map[string]requests{
		"a": {{"create", "pods"}: 1, {"patch", vms + "/status"}: 2, {"get", vms}: 1},
		"b": {{"patch", vmis}: 1},
	}
	assert.DeepEqual(t, got.requests, want, cmp.AllowUnexported(request{}))
	assert.Equal(t, len(got.watches), 2)
	assert.Equal(t, got.requests["a"].all(), 4)
	assert.Equal(t, got.requests["a"].writes(vms), 2)
}

func TestHistogram(t *testing.T) {
	limits := []float64{1, 2, 4}
	samples := []float64{0.5, 1, 1.5, 3, 9}
	counts := histogram(limits, samples)
	assert.DeepEqual(t, counts, []int{2, 3, 4, 5})
	for _, tt := range []struct{ q, want float64 }{
		{0.2, 0.5}, // half of the first bucket's two
		{0.5, 1.5}, // half of the second's one
		{0.8, 4},
		{0.95, 4}, // beyond the last limit
	} {
		if got := quantile(tt.q, limits, counts); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("quantile %g: %g, want %g", tt.q, got, tt.want)
		}
	}
	if !math.IsNaN(quantile(0.5, limits, histogram(limits, nil))) {
		t.Error("no samples have a quantile")
	}
}

func TestSizes(t *testing.T) {
	assert.DeepEqual(t, Sizes(1), []int{1})
	assert.DeepEqual(t, Sizes(5), []int{1, 5})
	assert.DeepEqual(t, Sizes(10_000), []int{1000, 3000, 10_000})
}

func TestLeads(t *testing.T) {
	for text, want := range map[string]bool{
		"# TYPE leader_election_master_status gauge\nleader_election_master_status{name=\"c\"} 1\n": true,
		"leader_election_master_status{name=\"c\"} 0\n":                                             false,
	} {
		got, err := leads(strings.NewReader(text))
		assert.NilError(t, err)
		assert.Equal(t, got, want)
	}
	if _, err := leads(strings.NewReader("go_goroutines 7\n")); err == nil {
		t.Error("a replica without the metric has an answer")
	}
}

// TestQueued: requests of all reconcilers and priorities count, and those that are being reconciled.
func TestQueued(t *testing.T) {
	got, err := queued(strings.NewReader("# TYPE workqueue_depth gauge\n" +
		"workqueue_depth{controller=\"vm\",name=\"vm\",priority=\"0\"} 2\nworkqueue_depth{controller=\"vm\",name=\"vm\",priority=\"10\"} 1\n" +
		"controller_runtime_active_workers{controller=\"vmi\"} 3\nworkqueue_retries_total{controller=\"vm\"} 9\n"))
	assert.NilError(t, err)
	assert.Equal(t, got, 6.0)
}

// TestTransitions: a VMI's first moment of running counts.
func TestTransitions(t *testing.T) {
	tr := &transitions{
		created: map[client.ObjectKey]time.Time{}, running: map[client.ObjectKey]time.Time{}, changed: make(chan struct{}, 1),
	}
	a, b := client.ObjectKey{Namespace: "n", Name: "a"}, client.ObjectKey{Namespace: "n", Name: "b"}
	tr.created[a], tr.created[b] = time.Now().Add(-time.Minute), time.Now()
	see := func(phase kubevirt.VirtualMachineInstancePhase) {
		tr.see(&kubevirt.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}, Status: kubevirt.VirtualMachineInstanceStatus{Phase: phase},
		})
	}
	see(kubevirt.Scheduled)
	_, missing := tr.took([]client.ObjectKey{a, b})
	assert.Equal(t, missing, 2)
	see(kubevirt.Running)
	first, missing := tr.took([]client.ObjectKey{a, b})
	assert.Equal(t, missing, 1)
	see(kubevirt.Running)
	second, _ := tr.took([]client.ObjectKey{a, b})
	assert.DeepEqual(t, first, second)
	if len(first) != 1 || first[0] < 60 {
		t.Errorf("it took %v s, want a minute", first)
	}
}

// TestGrowth: a size is held against the first, for each of its objects.
func TestGrowth(t *testing.T) {
	at := func(size, grown int, cpu, rss float64) step {
		return step{
			size: size, grown: grown, atOnce: grown, created: time.Second, ran: time.Duration(grown) * 10 * time.Millisecond,
			cpu: map[string]float64{program: cpu}, footprint: footprint{rss: rss},
		}
	}
	section := growthSection("VM", Options{Nodes: 10, Rate: 10}, footprint{rss: 50}, []step{at(1000, 1000, 5, 60), at(3000, 2000, 20, 200)})
	rows := map[string]report.Row{}
	for _, row := range section.Rows {
		rows[row.Name] = row
	}
	for name, want := range map[string]struct {
		result float64
		met    bool
	}{
		"1000 VMs: controller's CPU, each":             {5, true},
		"3000 VMs: controller's CPU, each":             {2, false}, // 10 ms against 5
		"3000 VMs: to Running at once, each":           {1, true},
		"1000 VMs: RSS beyond none, each":              {10.24, true},
		"3000 VMs: RSS beyond none, each":              {51.2, false},
		"3000 VMs: RSS beyond the number before, each": {71.68, false},
		"3000 VMs: the leader's RSS":                   {200, true},
		"1000 VMs: created at once, each":              {1, true},
		"none: the leader's RSS":                       {50, true},
		"3000 VMs: the leader's peak RSS":              {0, true},
		"1000 VMs: to Running at once, each":           {10, true},
		"3000 VMs: created at once, each":              {0.5, true},
	} {
		row := rows[name]
		if got := row.Result(); math.Abs(got-want.result) > 1e-9 {
			t.Errorf("%s: %g, want %g", name, got, want.result)
		}
		if row.Met() != want.met {
			t.Errorf("%s: met %t", name, row.Met())
		}
	}
	if _, has := rows["1000 VMs: one by one, Running: P50"]; has {
		t.Error("without samples there is a quantile")
	}
}

// TestStages: KWOK's stages take a pod from its node to a guest that runs, with what the controller reads.
func TestStages(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: pod.Container, Image: "i"}}}}
	played := map[string]bool{}
	for document := range strings.SplitSeq(stages(), "---\n") {
		var stage struct {
			Metadata struct{ Name string }
			Spec     struct {
				ResourceRef struct{ Kind string }
				Next        struct{ StatusTemplate string }
			}
		}
		assert.NilError(t, yaml.Unmarshal([]byte(document), &stage))
		if stage.Spec.ResourceRef.Kind != "Pod" || stage.Spec.Next.StatusTemplate == "" {
			continue
		}
		var s corev1.PodStatus
		assert.NilError(t, yaml.UnmarshalStrict([]byte(render(t, stage.Spec.Next.StatusTemplate, p)), &s))
		for _, c := range s.Conditions {
			played[string(c.Type)+" "+string(c.Status)] = true
		}
		if s.Phase == corev1.PodRunning {
			assert.Equal(t, s.PodIP, "10.0.0.1")
			assert.Equal(t, s.ContainerStatuses[0].Name, pod.Container)
			assert.Assert(t, s.ContainerStatuses[0].State.Running != nil)
		}
	}
	for _, want := range []string{
		"Initialized True", "Ready False", "Ready True", "PodReadyToStartContainers True",
		condition.VMReady + " True", condition.Paused + " False", condition.LiveMigratable + " True", condition.AgentConnected + " False",
	} {
		assert.Assert(t, played[want], "no stage sets %s", want)
	}
	// The selectors name it in full.
	assert.Assert(t, strings.Contains(stages(), `select( .type == "`+condition.VMReady+`" )`))
}

// render does what KWOK does with a template.
func render(t *testing.T, text string, p *corev1.Pod) string {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	assert.NilError(t, err)
	object["metadata"] = map[string]any{"uid": "u", "name": "p", "namespace": "n"}
	tmpl, err := template.New("").Funcs(template.FuncMap{
		"Now":         func() string { return "2026-01-02T03:04:05Z" },
		"Quote":       func(v any) string { return `"` + v.(string) + `"` },
		"NodeIPsWith": func(string) []string { return []string{"192.0.2.1"} },
		"PodIPsWith":  func(string, bool, any, any, any) []string { return []string{"10.0.0.1"} },
	}).Parse(text)
	assert.NilError(t, err)
	var b strings.Builder
	assert.NilError(t, tmpl.Execute(&b, object))
	return b.String()
}
