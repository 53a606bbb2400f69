package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// slow makes disks take time: until release is called.
func (n *node) slow() (release func()) {
	n.disks.Slow = true
	n.disks.Progress = []expand.Progress{{Waiting: true}, {Done: 0.05}, {Done: 0.42}}
	return n.script.Hold("Disks.Create")
}

// call makes a CreateContainer with a kubelet's deadline.
func (n *node) call(t *testing.T, pod string, c *runtimeapi.ContainerConfig) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return n.Create(ctx, pod, c)
}

func TestCreationOutlivesACall(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod, release := n.addPod(t, "pod", nil), n.slow()
		begun := time.Now()
		_, err := n.call(t, pod, request(0))
		if !errors.Is(err, vmerrors.ErrUnfinished) {
			t.Fatalf("a call that ends before: %v", err)
		}
		wantError(t, err, `container "vm"`, `disk "disk" is being expanded: 42 %; the work goes on, try again`)
		if took := time.Since(begun); took >= 2*time.Minute || took < 110*time.Second {
			t.Errorf("answered after %s", took)
		}
		if u := n.Unfinished(pod); u == nil || u.Container != "vm" || len(u.Disks) != 1 || u.Disks[0].Done != 0.42 {
			t.Errorf("unfinished %+v", u)
		}
		if all := n.Expanding(); len(all) != 1 || all[0].Namespace != "default" || all[0].Name != "pod" || all[0].Done != 0.42 {
			t.Errorf("expanding %+v", all)
		}
		if n.log.count("expanding a disk") != 3 { // it waits, it began, it is at 42 %
			t.Errorf("log:\n%s", n.log.text.String())
		}
		go func() {
			time.Sleep(time.Second)
			release()
		}()
		labelled := request(0)
		labelled.Labels = map[string]string{"call": "2"}
		id, err := n.call(t, pod, labelled)
		must(t, err)
		if r := n.rec(t, id); r.State != record.Created || r.Config.Value.GetLabels()["call"] != "2" {
			t.Errorf("it is %s, as of %v", r.State, r.Config.Value)
		}
		if n.Unfinished(pod) != nil || len(n.Expanding()) != 0 {
			t.Error("it is still unfinished")
		}
		must(t, n.Start(t.Context(), id))
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

func TestCreationIsCollectedLater(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod, release := n.addPod(t, "pod", nil), n.slow()
		if _, err := n.call(t, pod, request(0)); !errors.Is(err, vmerrors.ErrUnfinished) {
			t.Fatal(err)
		}
		release()
		time.Sleep(time.Minute)
		_, err := n.call(t, pod, request(0))
		must(t, err)
	})
}

func TestCreationIsForgotten(t *testing.T) {
	for _, ready := range []bool{false, true} {
		onNode(t, func(t *testing.T, n *node) {
			pod, release := n.addPod(t, "pod", nil), n.slow()
			if _, err := n.call(t, pod, request(0)); !errors.Is(err, vmerrors.ErrUnfinished) {
				t.Fatal(err)
			}
			if ready {
				release()
			}
			time.Sleep(4 * time.Minute)
			if n.Unfinished(pod) == nil {
				t.Error("it was forgotten too early")
			}
			time.Sleep(2 * time.Minute)
			n.wantNothing(t)
		})
	}
}

func TestCreationIsCancelled(t *testing.T) {
	for name, do := range map[string]func(*node, string) error{
		"stop":   func(n *node, pod string) error { return n.StopIn(context.Background(), pod) },
		"remove": func(n *node, pod string) error { return n.RemoveIn(context.Background(), pod) },
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				pod := n.addPod(t, "pod", nil)
				n.slow()
				failed := make(chan error)
				go func() {
					_, err := n.call(t, pod, request(0))
					failed <- err
				}()
				synctest.Wait()
				must(t, do(n, pod))
				if err := <-failed; err == nil {
					t.Error("a call got a container that is gone")
				} else {
					wantError(t, err, "cancelled: the pod is stopped or removed")
				}
				n.wantNothing(t)
			})
		})
	}
}

func TestCreationOfAChangedRequest(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := n.addPod(t, "pod", nil)
		n.slow()
		if _, err := n.call(t, pod, request(0)); !errors.Is(err, vmerrors.ErrUnfinished) {
			t.Fatal(err)
		}
		n.script.Fail("Disks.Create", nil)
		larger := proto.CloneOf(request(0))
		larger.Linux.Resources.MemoryLimitInBytes *= 2
		id, err := n.call(t, pod, larger)
		must(t, err)
		if r := n.rec(t, id); r.Spec.Memory != 512<<20 {
			t.Errorf("memory %d", r.Spec.Memory)
		}
		if n.log.count("cancelled: the same container is requested with other settings") == 0 {
			t.Error("the log does not say why the first one was cancelled")
		}
	})
}

func TestCreationFails(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := n.addPod(t, "pod", nil)
		n.disks.Slow = true
		n.script.Fail("Disks.Create", errors.New("no space left on device"))
		_, err := n.call(t, pod, request(0))
		wantError(t, err, `container "vm": no space left on device`)
		n.wantNothing(t)
		n.script.Fail("Disks.Create", nil)
		_, err = n.call(t, pod, request(0))
		must(t, err)
	})
}

// TestCreationCantBeRecorded: a call that fails to collect does not spoil it for
// the next one.
func TestCreationCantBeRecorded(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod, release := n.addPod(t, "pod", nil), n.slow()
		go func() {
			time.Sleep(time.Second)
			n.script.Fail("Store.PutContainer", errors.New("no space left on device"))
			release()
		}()
		_, err := n.call(t, pod, request(0))
		wantError(t, err, "no space left on device")
		n.script.Fail("Store.PutContainer", nil)
		_, err = n.call(t, pod, request(0))
		must(t, err)
	})
}

// TestCreationOfTwoCalls: one container, and one call gets it.
func TestCreationOfTwoCalls(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod, release := n.addPod(t, "pod", nil), n.slow()
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := n.call(t, pod, request(0))
				results <- err
			}()
			synctest.Wait()
		}
		release()
		first, second := <-results, <-results
		if first != nil && second != nil || !errors.Is(errors.Join(first, second), vmerrors.ErrExists) {
			t.Errorf("the calls got %v and %v", first, second)
		}
	})
}

// TestShimEndsWhileItCreates: the next shim finds and removes what was made.
func TestShimEndsWhileItCreates(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := n.addPod(t, "pod", nil)
		n.slow()
		if _, err := n.call(t, pod, request(0)); !errors.Is(err, vmerrors.ErrUnfinished) {
			t.Fatal(err)
		}
		n.restart(t)
		n.wantNothing(t)
	})
}
