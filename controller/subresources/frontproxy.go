package subresources

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
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

// again is the time after a try to read the ConfigMap that failed.
const again = 2 * time.Second

// start reads the ConfigMap, as soon as there is an API server, and follows it until ctx ends.
func (f *frontProxy) start(ctx context.Context, log *slog.Logger) error {
	for {
		err := errors.Join(f.authority.RunOnce(ctx), f.headers.RunOnce(ctx))
		if err == nil {
			break
		}
		log.Warn("can't read who the API server's front proxy is; trying again",
			"namespace", authenticationNamespace, "configmap", authenticationConfig, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(again):
		}
	}
	go f.authority.Run(ctx, 1)
	go f.headers.Run(ctx, 1)
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
