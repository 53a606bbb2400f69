package aggregated

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// frontProxy recognizes the API server's front proxy. Each API server publishes in a ConfigMap the
// proxy's certificate authority, its names, and the headers that name the caller.
type frontProxy struct {
	authority *dynamiccertificates.ConfigMapCAController
	headers   *headerrequest.RequestHeaderAuthRequestController
	authenticator.Request
}

const (
	authenticationNamespace = "kube-system"
	authenticationConfig    = "extension-apiserver-authentication"
)

func newFrontProxy(cluster kubernetes.Interface) (*frontProxy, error) {
	authority, err := dynamiccertificates.NewDynamicCAFromConfigMapController("front-proxy",
		authenticationNamespace, authenticationConfig, "requestheader-client-ca-file", cluster)
	if err != nil {
		return nil, err
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(authenticationConfig, authenticationNamespace, cluster,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")
	return &frontProxy{authority: authority, headers: headers, Request: headerrequest.NewDynamicVerifyOptionsSecure(
		authority.VerifyOptions,
		headerrequest.StringSliceProvider(headerrequest.StringSliceProviderFunc(headers.AllowedClientNames)),
		headerrequest.StringSliceProviderFunc(headers.UsernameHeaders),
		headerrequest.StringSliceProviderFunc(headers.UIDHeaders),
		headerrequest.StringSliceProviderFunc(headers.GroupHeaders),
		headerrequest.StringSliceProviderFunc(headers.ExtraHeaderPrefixes),
	)}, nil
}

// retryInterval is the time between two attempts to read the ConfigMap.
const retryInterval = 2 * time.Second

// start reads the ConfigMap, retrying until it succeeds, and watches it until ctx ends. It fails only
// if ctx ends first.
func (f *frontProxy) start(ctx context.Context, log *slog.Logger) error {
	for {
		err := errors.Join(f.authority.RunOnce(ctx), f.headers.RunOnce(ctx))
		if err == nil {
			break
		}
		log.Warn("can't read the description of the API server's front proxy; retrying",
			"namespace", authenticationNamespace, "configmap", authenticationConfig, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryInterval):
		}
	}
	go f.authority.Run(ctx, 1)
	go f.headers.Run(ctx, 1)
	return nil
}

// known reports whether the front proxy's authority has been read.
func (f *frontProxy) known() bool {
	_, ok := f.authority.VerifyOptions()
	return ok
}

// verify accepts a TLS connection whose client is the front proxy.
func (f *frontProxy) verify(state tls.ConnectionState) error {
	options, ok := f.authority.VerifyOptions()
	if !ok || len(state.PeerCertificates) == 0 {
		return errors.New("not the API server's front proxy")
	}
	options.Intermediates = x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	client := state.PeerCertificates[0]
	if _, err := client.Verify(options); err != nil {
		return fmt.Errorf("verify the front proxy's certificate: %w", err)
	}
	names := f.headers.AllowedClientNames()
	if len(names) > 0 && !slices.Contains(names, client.Subject.CommonName) {
		return fmt.Errorf("certificate of %q: not a name of the API server's front proxy", client.Subject.CommonName)
	}
	return nil
}

// caller returns the user who called the front proxy. It fails if another client calls, or if the
// proxy names no user.
func (f *frontProxy) caller(r *http.Request) (user.Info, error) {
	found, ok, err := f.AuthenticateRequest(r)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("not the API server's front proxy")
	}
	return found.User, nil
}
