package lifecycle_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// traced has the node trace what follows.
func traced(n *node) *tracetest.InMemoryExporter {
	to := tracetest.NewInMemoryExporter()
	n.tracing = tracing.ForTest(to, 1)
	n.end()
	n.join()
	return to
}

// runSandbox makes a sandbox as RunPodSandbox does, which took two seconds.
func (n *node) runSandbox(t *testing.T, name string) (id, traceparent string) {
	t.Helper()
	id = n.addPod(t, name, map[string]string{tracing.Annotation: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"})
	r, _ := n.table.Sandbox(id)
	ctx, end := n.tracing.Start(t.Context(), tracing.Call{Name: "RunPodSandbox"})
	begun := time.Now()
	time.Sleep(2 * time.Second)
	end(nil)
	r.Trace, r.Timeline = tracing.Format(ctx), []record.Phase{{Name: record.PhaseSandbox, Begun: begun, Took: time.Since(begun)}}
	must(t, n.table.AddSandbox(r))
	return id, r.Trace
}

// TestTimeline: the record has the phases of the start, until the guest's first answer.
func TestTimeline(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		sandbox, _ := n.runSandbox(t, "pod")
		id, err := n.Create(t.Context(), sandbox, request(0))
		must(t, err)
		release := n.script.Hold("Libvirt.Start")
		time.AfterFunc(3*time.Second, release)
		must(t, n.Start(t.Context(), id))
		var names, want []string
		var start, resume record.Phase
		for i, p := range n.rec(t, id).Timeline {
			names = append(names, p.Name)
			switch p.Name {
			case "start":
				start = p
			case record.PhaseResume:
				resume = p
			}
			if i > 0 && p.Begun.Before(n.rec(t, id).Timeline[i-1].Begun) {
				t.Errorf("phase %s is behind a later one", p.Name)
			}
		}
		want = []string{record.PhaseSandbox, record.PhaseAcquire, record.PhaseFiles}
		for _, p := range lifecycle.Phases() {
			want = append(want, p.Name)
		}
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) || start.Took != 3*time.Second || resume.Begun.Before(start.Begun.Add(start.Took)) {
			t.Errorf("phases %v, want %v; start took %s", names, want, start.Took)
		}

		time.Sleep(7 * time.Second) // the guest boots
		for range 3 {
			n.libvirt.Emit(domain.Event{UUID: n.rec(t, id).Domain.UUID, Kind: domain.EventAgentConnected})
			synctest.Wait()
			time.Sleep(time.Second)
		}
		all := n.rec(t, id).Timeline
		if last := all[len(all)-1]; len(all) != len(want)+1 || last.Name != record.PhaseAgent || last.Took != 7*time.Second {
			t.Errorf("after the agent came: %+v", last)
		}
		n.restart(t)
		if again := n.rec(t, id).Timeline; len(again) != len(all) {
			t.Errorf("after a restart: %+v", again)
		}
	})
}

// TestTimelineOfLaterContainers: the sandbox was made for the first one.
func TestTimelineOfLaterContainers(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		sandbox, _ := n.runSandbox(t, "pod")
		id, err := n.Create(t.Context(), sandbox, request(1))
		must(t, err)
		if all := n.rec(t, id).Timeline; len(all) != 2 || all[0].Name != record.PhaseAcquire {
			t.Errorf("timeline %+v", all)
		}
	})
}

// TestNoAnswer: the time until an agent says nothing of a guest that did not boot here or now.
func TestNoAnswer(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		paused := strings.Replace(displayVMI, `{"domain": {"devices": {"autoattachGraphicsDevice": true, `,
			`{"startStrategy": "Paused", "domain": {"devices": {"autoattachGraphicsDevice": false, `, 1)
		id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: paused}), request(0))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		n.libvirt.Emit(domain.Event{UUID: n.rec(t, id).Domain.UUID, Kind: domain.EventAgentConnected})
		synctest.Wait()
		if all := n.rec(t, id).Timeline; slices.ContainsFunc(all, func(p record.Phase) bool { return p.Name == record.PhaseAgent }) {
			t.Errorf("timeline %+v", all)
		}
	})
}

// TestTimelineOfAFailedStart has the phases until then.
func TestTimelineOfAFailedStart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		n.script.Fail("Libvirt.Start", errors.New("no room"))
		wantError(t, n.Start(t.Context(), id), "no room")
		all := n.rec(t, id).Timeline
		if !slices.ContainsFunc(all, func(p record.Phase) bool { return p.Name == "start" }) ||
			slices.ContainsFunc(all, func(p record.Phase) bool { return p.Name == record.PhaseResume }) {
			t.Errorf("timeline %+v", all)
		}
	})
}

// TestTrace: the calls of a start and the guest's first answer are one trace, also across a restart.
func TestTrace(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		to := traced(n)
		sandbox, traceparent := n.runSandbox(t, "pod")
		id, err := n.Create(t.Context(), sandbox, request(0))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		n.restart(t)
		n.run(t)
		time.Sleep(time.Second)
		n.libvirt.Emit(domain.Event{UUID: n.rec(t, id).Domain.UUID, Kind: domain.EventAgentConnected})
		synctest.Wait()

		spans := map[string]tracetest.SpanStub{}
		for _, s := range to.GetSpans() {
			spans[s.Name] = s
			if s.SpanContext.TraceID().String() != tracing.TraceID(traceparent) {
				t.Errorf("span %s has another trace", s.Name)
			}
			if s.Status.Code == codes.Error {
				t.Errorf("span %s failed", s.Name)
			}
		}
		for child, parent := range map[string]string{
			"CreateContainer": "RunPodSandbox", "StartContainer": "RunPodSandbox",
			"phase acquire": "CreateContainer", "phase files": "CreateContainer", "phase agent": "StartContainer",
		} {
			if spans[child].Parent.SpanID() != spans[parent].SpanContext.SpanID() || !spans[parent].SpanContext.IsValid() {
				t.Errorf("%s is no child of %s", child, parent)
			}
		}
		for _, p := range lifecycle.Phases() {
			if spans["phase "+p.Name].Parent.SpanID() != spans["StartContainer"].SpanContext.SpanID() {
				t.Errorf("phase %s is no child of StartContainer", p.Name)
			}
		}
		for _, name := range []string{"CreateContainer", "StartContainer", "phase agent"} {
			got := map[string]string{}
			for _, a := range spans[name].Attributes {
				got[string(a.Key)] = a.Value.AsString()
			}
			if got["k8s.pod.name"] != "pod" || got["k8s.namespace.name"] != "default" || got["k8s.pod.uid"] != "uid-pod" || got["container.id"] != id {
				t.Errorf("attributes of %s: %v", name, got)
			}
		}
		if links := spans["StartContainer"].Links; len(links) != 1 || !strings.HasPrefix(links[0].SpanContext.TraceID().String(), "0123") {
			t.Errorf("links %v", links)
		}
	})
}

// TestTraceOfAnOrdinaryContainer: that an image has no disk is no failure.
func TestTraceOfAnOrdinaryContainer(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		to := traced(n)
		n.script.Fail("Images.Acquire", imageunpack.ErrNoDisk)
		if _, err := n.Create(t.Context(), n.addPod(t, "pod", nil), request(0)); err == nil {
			t.Fatal("there is no disk, and no error")
		}
		for _, s := range to.GetSpans() {
			if s.Status.Code == codes.Error {
				t.Errorf("span %s failed", s.Name)
			}
		}
	})
}

// TestTraceOfAFailure has no text of the error.
func TestTraceOfAFailure(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		to := traced(n)
		id := n.created(t, "pod")
		n.script.Fail("Libvirt.Start", errors.New("password hunter2"))
		wantError(t, n.Start(t.Context(), id), "hunter2")
		failed := 0
		for _, s := range to.GetSpans() {
			for _, a := range s.Attributes {
				if strings.Contains(a.Value.String(), "hunter2") {
					t.Errorf("span %s has %s", s.Name, a.Value.String())
				}
			}
			if s.Name == "phase start" || s.Name == "StartContainer" {
				failed++
				if s.Status.Code != codes.Error || s.Status.Description != "" {
					t.Errorf("span %s: %+v", s.Name, s.Status)
				}
			}
		}
		if failed != 2 {
			t.Errorf("%d of 2 failed spans", failed)
		}
	})
}

// TestTraceOfAnExpansion: what goes on after the call is in the call's trace.
func TestTraceOfAnExpansion(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		to := traced(n)
		n.mode = vmspec.ModeRaw
		n.end()
		n.join()
		sandbox, traceparent := n.runSandbox(t, "pod")
		id, err := n.Create(t.Context(), sandbox, request(0))
		must(t, err)
		for _, s := range to.GetSpans() {
			if s.Name == "phase files" && s.SpanContext.TraceID().String() == tracing.TraceID(traceparent) {
				if all := n.rec(t, id).Timeline; all[len(all)-1].Name != record.PhaseFiles {
					t.Errorf("timeline %+v", all)
				}
				return
			}
		}
		t.Errorf("no span of the files among %v", to.GetSpans().Snapshots())
	})
}
