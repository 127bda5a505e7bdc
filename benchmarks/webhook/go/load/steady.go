package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
)

// Steady is a load that goes on while its servers come and go. A new connection goes to one of
// the endpoints of the moment, an open one stays where it is, as through a Service.
type steady struct {
	caller    *caller
	pace      *pace
	done      chan struct{}
	lock      sync.Mutex
	endpoints []string
	serials   map[string]struct{} // of the certificates that were seen
	dials     int
}

type steadyResult struct {
	openResult
	Dials        int `json:"dials"`
	Certificates int `json:"certificates"`
}

func startSteady(asked *command) (*steady, error) {
	begun := &steady{
		done:      make(chan struct{}),
		endpoints: asked.Endpoints,
		serials:   map[string]struct{}{},
	}
	caller, err := newCaller(asked, begun.dial)
	if err != nil {
		return nil, err
	}
	transport, fits := caller.client.Transport.(*http.Transport)
	if !fits {
		return nil, errors.New("the transport is none of net/http")
	}
	transport.TLSClientConfig.VerifyConnection = begun.see
	begun.caller = caller
	begun.pace = newPace(asked.Rate, 0)
	go func() {
		defer close(begun.done)
		begun.pace.run(caller.call)
	}()
	return begun, nil
}

func (s *steady) do(asked *command) (any, error) {
	switch asked.Do {
	case "endpoints":
		s.lock.Lock()
		defer s.lock.Unlock()
		s.endpoints = asked.Endpoints
		return struct{}{}, nil
	case "renew":
		// A changed caBundle makes the API server start with new connections.
		s.caller.close()
		return struct{}{}, nil
	case "stop":
		s.pace.stopped.Store(true)
		<-s.done
		s.caller.close()
		s.lock.Lock()
		defer s.lock.Unlock()
		return &steadyResult{
			openResult: *s.pace.result(), Dials: s.dials, Certificates: len(s.serials),
		}, nil
	}
	return nil, fmt.Errorf("unknown command %q", asked.Do)
}

func (s *steady) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	s.lock.Lock()
	if len(s.endpoints) == 0 {
		s.lock.Unlock()
		return nil, errors.New("no endpoint is ready")
	}
	chosen := s.endpoints[rand.IntN(len(s.endpoints))]
	s.dials++
	s.lock.Unlock()
	return (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, chosen)
}

func (s *steady) see(state tls.ConnectionState) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.serials[state.PeerCertificates[0].SerialNumber.String()] = struct{}{}
	return nil
}
