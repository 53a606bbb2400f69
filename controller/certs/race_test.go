package certs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestLoserServes: a replica whose write of the Secret comes second serves with the first one's
// certificate after the same look, when the Secret is made and when it is renewed.
func TestLoserServes(t *testing.T) {
	now := time.Now()
	keeper := func(c client.Client) *Keeper {
		return &Keeper{
			Client: c, Secret: types.NamespacedName{Namespace: "default", Name: "tls"}, DNSName: "x.default.svc",
			Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		}
	}
	cluster := fake.NewClientBuilder().Build()
	winner := keeper(cluster)
	lost := 0
	// first has the winner write right before the loser does.
	first := func(ctx context.Context) error {
		lost++
		return winner.look(ctx)
	}
	loser := keeper(interceptor.NewClient(cluster, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := first(ctx); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := first(ctx); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
	}))
	same := func() {
		t.Helper()
		assert.Equal(t, loser.step(t.Context()), often)
		want, err := winner.GetCertificate(nil)
		assert.NilError(t, err)
		got, err := loser.GetCertificate(nil)
		assert.NilError(t, err)
		assert.Assert(t, got.Leaf.Equal(want.Leaf))
	}
	same()
	assert.Equal(t, lost, 1, "the Secret was made by")
	lost = 0
	now = now.Add(80 * day)
	same()
	assert.Equal(t, lost, 1, "the Secret was renewed by")
}

// TestEndlessConflict: a look ends although each write meets a conflict.
func TestEndlessConflict(t *testing.T) {
	writes := 0
	k := &Keeper{
		Client: interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				writes++
				return apierrors.NewAlreadyExists(corev1.Resource("secrets"), "tls")
			},
		}),
		Secret: types.NamespacedName{Namespace: "default", Name: "tls"}, DNSName: "x.default.svc",
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	assert.Equal(t, k.step(t.Context()), soon)
	assert.Equal(t, writes, attempts)
}
