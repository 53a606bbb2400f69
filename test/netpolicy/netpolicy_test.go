package netpolicy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/knftables"

	"github.com/nodevirt/nodevirt/test/wait"
)

const ownNode = "node-1"

// objects reads a file of manifests.
func objects(t *testing.T, path string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	var all []runtime.Object
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(part, nil, nil)
		assert.NilError(t, err, "%s", part)
		all = append(all, o)
	}
	return all
}

// TestTable compares the tables of testdata's manifests, to which it adds the cluster that all share.
func TestTable(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	assert.NilError(t, err)
	assert.Assert(t, len(files) > 1)
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if name == "cluster" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := state{node: ownNode}
			for _, o := range append(objects(t, "testdata/cluster.yaml"), objects(t, path)...) {
				switch o := o.(type) {
				case *corev1.Pod:
					s.pods = append(s.pods, o)
				case *corev1.Namespace:
					s.namespaces = append(s.namespaces, o)
				case *networkingv1.NetworkPolicy:
					s.policies = append(s.policies, o)
				default:
					t.Fatalf("%s: %T", path, o)
				}
			}
			nft := knftables.NewFake(knftables.InetFamily, "network-policies")
			for range 2 { // over an earlier one, too
				tx := nft.NewTransaction()
				s.table(tx)
				assert.NilError(t, nft.Run(t.Context(), tx))
			}
			golden.Assert(t, nft.Dump(), name+".nft")
		})
	}
}

// failing fails the first change of a table.
type failing struct {
	*knftables.Fake

	failed atomic.Bool
}

func (f *failing) Run(ctx context.Context, tx *knftables.Transaction) error {
	if !f.failed.Swap(true) {
		return errors.New("nft is busy")
	}
	return f.Fake.Run(ctx, tx)
}

func TestRunFollowsTheObjects(t *testing.T) {
	nft := &failing{Fake: knftables.NewFake(knftables.InetFamily, "network-policies")}
	client := fake.NewClientset(objects(t, "testdata/cluster.yaml")...)
	ctx, stop := context.WithCancel(t.Context())
	var agent errgroup.Group
	agent.Go(func() error {
		return Run(ctx, Options{Node: ownNode, Client: client, NFT: nft, Log: slog.New(slog.DiscardHandler)})
	})
	isolated := func(want ...string) {
		t.Helper()
		wait.Success(t, "the table", func(ctx context.Context) error {
			elements, err := nft.ListElements(ctx, "map", "ingress4")
			if err != nil {
				return err
			}
			var got []string
			for _, e := range elements {
				got = append(got, e.Key[0])
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("isolated: %q, want %q", got, want)
			}
			return nil
		})
	}
	isolated()
	policies := client.NetworkingV1().NetworkPolicies("shop")
	deny := objects(t, "testdata/deny.yaml")[0].(*networkingv1.NetworkPolicy)
	_, err := policies.Create(ctx, deny, metav1.CreateOptions{})
	assert.NilError(t, err)
	isolated("10.244.1.2")
	assert.NilError(t, client.CoreV1().Pods("shop").Delete(ctx, "web", metav1.DeleteOptions{}))
	isolated()
	stop()
	assert.NilError(t, agent.Wait())
}
