package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keeper holds the certificate that a replica serves with. It runs on each of
// them: see [Keeper.Start].
type Keeper struct {
	// Client reads from the API server, not from a cache.
	Client client.Client
	// Secret keeps certificate and authority; it is made if there is none.
	Secret types.NamespacedName
	// DNSName is the name by which clients, such as the API server, call the server.
	DNSName string
	// Needed reports whether the certificate is needed now; nil for always.
	Needed func(ctx context.Context) (bool, error)
	// Trust are the configurations that name the trusted authorities.
	Trust []Trust
	// Now is the time; a test may have its own.
	Now func() time.Time
	Log *slog.Logger

	serving atomic.Pointer[tls.Certificate]
}

// Trust writes a bundle of authorities, in PEM, to where an API server reads it.
// It writes nothing if it is there already.
type Trust func(ctx context.Context, c client.Client, bundle []byte) error

const (
	// often is the time between two checks. Renewals need fewer checks, but a user
	// who applies the manifests again may remove the bundle from them.
	often = time.Minute
	// unneeded is the time between two checks while the certificate is not needed.
	unneeded = 15 * time.Second
	// soon is the time after a look that failed.
	soon = 2 * time.Second
	// lookTimeout bounds one look.
	lookTimeout = 30 * time.Second
	// attempts bounds how often one look reads the Secret again because another replica wrote it first.
	attempts = 5
)

// Start keeps the certificate good until the context ends. Errors are logged, and
// what failed is tried again.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait := k.step(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// step looks once, if the certificate is needed, and returns when to look again.
func (k *Keeper) step(ctx context.Context) time.Duration {
	needed, err := true, error(nil)
	if k.Needed != nil {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		needed, err = k.Needed(bounded)
		cancel()
	}
	if err == nil && needed {
		err = k.look(ctx)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		k.Log.Warn("can't renew the certificate; trying again", "name", k.DNSName, "err", err)
		return soon
	case !needed:
		return unneeded
	}
	return often
}

// NeedLeaderElection makes controller-runtime run the keeper on each replica.
func (k *Keeper) NeedLeaderElection() bool { return false }

// GetCertificate is a TLS server's. It fails before the first look succeeded.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := k.serving.Load(); cert != nil {
		return cert, nil
	}
	return nil, errors.New("the certificate isn't there yet")
}

// look renews the Secret where that is due, and has the API server trust the
// authority before anything is served that it signed.
func (k *Keeper) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	c, err := k.agree(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, trust := range k.Trust {
		errs = append(errs, trust(ctx, k.Client, c[keyAuthorities]))
	}
	before := k.serving.Load()
	if err := errors.Join(errs...); err != nil && before != nil {
		return err // what is served is trusted still
	}
	cert, err := c.certificate()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if before == nil || !before.Leaf.Equal(cert.Leaf) {
		k.Log.Info("new certificate", "name", k.DNSName, "until", cert.Leaf.NotAfter)
	}
	k.serving.Store(cert)
	return errors.Join(errs...)
}

// agree returns the content that all replicas serve with. If several replicas write the Secret at
// once, one of them wins, and the others read what it wrote without a pause: a replica that has no
// certificate yet serves nothing.
func (k *Keeper) agree(ctx context.Context) (c content, err error) {
	for range attempts {
		if c, err = k.renew(ctx); !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return c, err
		}
	}
	return nil, err
}

// renew returns what the Secret holds, after it was made or renewed if need be. The error is a
// conflict if another replica wrote the Secret meanwhile.
func (k *Keeper) renew(ctx context.Context) (content, error) {
	secret := new(corev1.Secret)
	err := k.Client.Get(ctx, k.Secret, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("read secret %s: %w", k.Secret, err)
	}
	have := content(secret.Data)
	c, err := have.renewed(k.DNSName, k.Now())
	if err != nil {
		return nil, err
	}
	secret.Data = c
	switch {
	case missing:
		secret.ObjectMeta = metav1.ObjectMeta{
			Name: k.Secret.Name, Namespace: k.Secret.Namespace,
			Labels: map[string]string{"app.kubernetes.io/name": "nodevirt"},
		}
		secret.Type = corev1.SecretTypeTLS
		if err := k.Client.Create(ctx, secret); err != nil {
			return nil, fmt.Errorf("create secret %s: %w", k.Secret, err)
		}
	case !c.equal(have):
		if err := k.Client.Update(ctx, secret); err != nil {
			return nil, fmt.Errorf("update secret %s: %w", k.Secret, err)
		}
	}
	return c, nil
}
