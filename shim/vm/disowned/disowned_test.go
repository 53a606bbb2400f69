package disowned

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/nodelabels"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// server is an API server with some of the node's pods. Its list may be behind.
type server struct {
	listed, has map[string]string // versions by UIDs, of pods in namespace ns
	version     uint64
	err         error
	asked       int
}

func (s *server) All(context.Context) (map[string]podstatus.Listed, bool, error) {
	all := map[string]podstatus.Listed{}
	for uid, version := range s.listed {
		all[uid] = podstatus.Listed{Pod: podstatus.Pod{Namespace: "ns", Name: strings.Replace(uid, "uid", "pod", 1), UID: uid}, Version: version}
	}
	return all, s.listed != nil, s.err
}

func (s *server) Gone(_ context.Context, pod podstatus.Pod) (bool, error) {
	s.asked++
	_, there := s.has[pod.UID]
	return !there, nil
}

func (s *server) Revision(context.Context) (uint64, error) { return s.version, nil }

// rig is a Survey with what it has reported.
type rig struct {
	*Survey
	*server
	table *table.Table
	count int
	last  nodelabels.NodeCondition
	seen  map[string]podstatus.Listed
	store *vmtest.Store
	left  []string // pods whose guests have left, and where to
}

func newRig(t *testing.T) *rig {
	r := &rig{server: &server{listed: map[string]string{}, has: map[string]string{}, version: 100}, count: -1}
	r.store = vmtest.NewStore(&vmtest.Script{}, t.TempDir())
	r.table = table.New(r.store, 0, 0)
	r.Survey = New(Options{
		Table: r.table, Pods: r.server, Seen: func(v map[string]podstatus.Listed) { r.seen = v }, Count: func(n int) { r.count = n },
		Ended: r.store.EndedOf, Departed: func(p podstatus.Pod, e record.Ended) { r.left = append(r.left, p.Namespace+"/"+p.Name+": "+e.Message) },
		Node:   func(_ context.Context, c nodelabels.NodeCondition) error { r.last = c; return nil },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	return r
}

// add enters a VM whose guest runs.
func (r *rig) add(letter, source string) *table.VM {
	c := record.Container{ID: strings.Repeat(letter, 64), SandboxID: strings.Repeat("0"+letter, 32), State: record.Running, StartedAt: time.Now()}
	c.Sandbox.Value = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "ns", Name: "pod-" + letter, Uid: "uid-" + letter},
		Annotations: map[string]string{
			"kubernetes.io/config.source": source, kubevirt.DomainAnnotation: "vm-" + letter,
			vmspec.AnnotationVMI: `{"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "pvc-` + letter + `"}}, {"name": "b", "dataVolume": {"name": "dv"}}, {"name": "c", "emptyDisk": {}}]}`,
		},
	}
	return r.table.Recover(c)
}

// TestCompare: a guest without a pod in the API server is reported until it has one, or ends. The list of pods alone, which
// may be behind, proves nothing.
func TestCompare(t *testing.T) {
	r := newRig(t)
	own, lost, late := r.add("a", "api"), r.add("b", "api"), r.add("c", "api")
	r.add("d", "file") // a static pod
	r.listed["uid-a"], r.has["uid-a"], r.has["uid-c"] = "7", "7", "8"
	if err := r.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.count != 1 || r.last.Status != "True" || r.last.Reason != condition.ReasonPodsUnknown || !strings.Contains(r.last.Message, "ns/pod-b (PVC pvc-b, dv)") {
		t.Errorf("%d guests, %+v", r.count, r.last)
	}
	if got, want := r.last.Annotations[condition.AnnotationGuests], `{"guests":[{"namespace":"ns","pod":"pod-b","uid":"uid-b","vmi":"vm-b","pvcs":["pvc-b","dv"]}]}`; got != want {
		t.Errorf("the annotation is %s, want %s", got, want)
	}
	if own.Disowned() != "" || late.Disowned() != "" || lost.Disowned() == "" || r.asked != 2 || r.seen["uid-a"].Version != "7" {
		t.Errorf("notes %q, %q, %q after %d questions", own.Disowned(), late.Disowned(), lost.Disowned(), r.asked)
	}
	r.has["uid-b"] = "9"
	if err := r.compare(t.Context()); err != nil || r.count != 0 || r.last.Status != "False" || r.last.Annotations[condition.AnnotationGuests] != "" || lost.Disowned() != "" {
		t.Errorf("%v, %d guests, %+v, %q", err, r.count, r.last, lost.Disowned())
	}
	r.err, r.last = errors.New("the API server is away"), nodelabels.NodeCondition{}
	if err := r.compare(t.Context()); !errors.Is(err, r.err) || r.last.Status != "" {
		t.Errorf("%v, %+v", err, r.last)
	}
	r.err, r.listed = nil, nil // no credential
	if err := r.compare(t.Context()); err != nil || r.last.Status != "" {
		t.Errorf("%v, %+v", err, r.last)
	}
}

// TestDeparted: after a restore of etcd, the API server can have a pod whose guest a migration has taken from here, and whose
// container is removed. The API server learns where the guest is. Other ends, and pods whose containers are here, say
// enough themselves.
func TestDeparted(t *testing.T) {
	r := newRig(t)
	r.add("a", "api")
	gone := record.Ended{At: time.Now(), Reason: condition.ReasonMigrated, Message: condition.Departure{Node: "node2", Migration: "m"}.Message()}
	for _, uid := range []string{"uid-a", "uid-b", "uid-not-listed"} {
		if err := r.store.PutEnded(uid, gone); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.store.PutEnded("uid-c", record.Ended{At: time.Now(), Reason: condition.ReasonCompleted}); err != nil {
		t.Fatal(err)
	}
	r.listed = map[string]string{"uid-a": "1", "uid-b": "2", "uid-c": "3", "uid-new": "4"}
	if err := r.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ns/pod-b: the guest runs on node node2 (migration m)"}; !slices.Equal(r.left, want) {
		t.Errorf("reported %q, want %q", r.left, want)
	}
}

// TestUnreadableEnd: an end that cannot be read keeps neither the guests without a pod from being reported nor the other
// pods whose guests have left, and is logged once.
func TestUnreadableEnd(t *testing.T) {
	r := newRig(t)
	var log bytes.Buffer
	r.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r.o.Ended = func(uid string) (record.Ended, bool, error) {
		if uid == "uid-b" {
			return record.Ended{}, false, errors.New("it is truncated")
		}
		return r.store.EndedOf(uid)
	}
	r.add("a", "api")
	gone := record.Ended{At: time.Now(), Reason: condition.ReasonMigrated, Message: condition.Departure{Node: "node2", Migration: "m"}.Message()}
	for _, uid := range []string{"uid-b", "uid-c"} {
		if err := r.store.PutEnded(uid, gone); err != nil {
			t.Fatal(err)
		}
	}
	r.listed = map[string]string{"uid-b": "2", "uid-c": "3"}
	for range 2 {
		if err := r.compare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r.count != 1 || r.last.Status != "True" {
		t.Errorf("%d guests without a pod, %+v", r.count, r.last)
	}
	if want := "ns/pod-c: the guest runs on node node2 (migration m)"; !slices.Equal(r.left, []string{want, want}) {
		t.Errorf("reported %q", r.left)
	}
	if text := log.String(); strings.Count(text, "it is truncated") != 1 || !strings.Contains(text, "ns/pod-b") {
		t.Errorf("log:\n%s", text)
	}
}

// TestWentBack: an API server whose version goes back was restored. That is reported for a while.
func TestWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, step := range []struct {
			revision uint64
			after    time.Duration
			want     string
		}{
			{100, time.Minute, "False"}, {105, time.Minute, "False"}, {60, time.Minute, "True"}, {61, time.Minute, "True"}, {62, remembered, "False"},
		} {
			time.Sleep(step.after)
			r.version = step.revision
			if err := r.compare(t.Context()); err != nil || r.last.Status != step.want {
				t.Errorf("at %d: %v, %+v", step.revision, err, r.last)
			}
		}
		if !strings.Contains(r.back, "from 105 to 60") {
			t.Errorf("%q", r.back)
		}
	})
}

// TestGuests: the controller learns of all guests of the API server's pods, and of long lists, the message names some.
func TestGuests(t *testing.T) {
	r := newRig(t)
	for _, letter := range []string{"a", "b"} {
		r.add(letter, "api")
	}
	r.add("d", "")
	text, err := r.Do(t.Context(), nil, condition.OrderGuests, "{}")
	if err != nil {
		t.Fatal(err)
	}
	var answer condition.NodeGuests
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Guests) != 2 {
		t.Fatalf("%s, %v", text, err)
	}
	for _, g := range answer.Guests {
		if letter := strings.TrimPrefix(g.UID, "uid-"); g.VMI != "vm-"+letter || g.Pod != "pod-"+letter || len(g.PVCs) != 2 {
			t.Errorf("%+v", g)
		}
	}
	many := make([]guest, 30)
	for i := range many {
		many[i].Namespace, many[i].Pod, many[i].PVCs = strings.Repeat("n", 60), strings.Repeat("p", 250), []string{strings.Repeat("c", 250)}
	}
	if text := names(many); len(text) > maxText+len("…") {
		t.Errorf("%d bytes", len(text))
	}
	many = slices.Repeat(many, 10)
	list, err := encode(many)
	answer = condition.NodeGuests{}
	if err := errors.Join(err, json.Unmarshal([]byte(list), &answer)); err != nil || len(list) > condition.MaxAnnotationGuests {
		t.Fatalf("%d bytes, %v", len(list), err)
	}
	if len(answer.Guests) < 50 || answer.More == 0 || len(answer.Guests)+answer.More != len(many) {
		t.Errorf("%d guests and %d more of %d", len(answer.Guests), answer.More, len(many))
	}
}
