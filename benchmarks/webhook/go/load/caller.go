package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	mostIdle = 25 // kubernetes/client-go, transport/cache.go
	timeout  = 10 * time.Second
)

type caller struct {
	client *http.Client
	url    string
	body   []byte
	uid    part // empty where the body has none
	marks  []part
	status int
	next   atomic.Int64
}

// A part of the body that is another one in each request.
type part struct{ begins, ends int }

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func newCaller(asked *command, dial dialer) (*caller, error) {
	body, err := os.ReadFile(asked.Body)
	if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(asked.Authorities)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("no certificate in %s", asked.Authorities)
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: timeout}).DialContext
	}
	idle := 90 * time.Second
	if asked.IdleS > 0 {
		idle = time.Duration(asked.IdleS * float64(time.Second))
	}
	made := &caller{
		client: &http.Client{Transport: &http.Transport{
			DialContext:         dial,
			MaxIdleConnsPerHost: mostIdle,
			IdleConnTimeout:     idle,
			TLSHandshakeTimeout: timeout,
			DisableKeepAlives:   asked.Fresh,
			TLSClientConfig: &tls.Config{
				RootCAs: pool, ServerName: asked.ServerName, MinVersion: tls.VersionTLS13,
				NextProtos: []string{"http/1.1"},
			},
		}},
		url:    asked.URL + "?timeout=10s",
		body:   body,
		status: asked.Status,
	}
	made.next.Store(time.Now().UnixMicro())
	for _, found := range parts(body, asked.UID) {
		made.uid = found
	}
	for _, mark := range asked.Marks {
		made.marks = append(made.marks, parts(body, mark)...)
	}
	return made, nil
}

// Where a text stands in a body.
func parts(body []byte, text string) []part {
	var found []part
	for from := 0; text != ""; {
		at := bytes.Index(body[from:], []byte(text))
		if at < 0 {
			break
		}
		found = append(found, part{from + at, from + at + len(text)})
		from += at + len(text)
	}
	return found
}

func (c *caller) close() { c.client.CloseIdleConnections() }

// One review, as the API server's client sends it; the answer has to be the one for this uid.
func (c *caller) call() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	body, uid := c.fresh()
	for attempt := 0; ; attempt++ {
		status, after, answer, err := c.send(ctx, body)
		if err != nil {
			return err
		}
		if retryable(status, after) && attempt < 10 {
			wait, _ := strconv.Atoi(after)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(wait) * time.Second):
				continue
			}
		}
		if status != c.status {
			return fmt.Errorf("status %d: %.200s", status, answer)
		}
		if status == http.StatusOK && uid != nil && !bytes.Contains(answer, uid) {
			return fmt.Errorf("the answer is for another review: %.200s", answer)
		}
		return nil
	}
}

func retryable(status int, after string) bool {
	if status != http.StatusTooManyRequests && status < http.StatusInternalServerError {
		return false
	}
	_, err := strconv.Atoi(after)
	return err == nil
}

func (c *caller) send(ctx context.Context, body []byte) (int, string, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kube-apiserver-admission")
	response, err := c.client.Do(request)
	if err != nil {
		return 0, "", nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header.Get("Retry-After"), answer, err
}

// A copy of the body with a uid of its own, and other marks.
func (c *caller) fresh() ([]byte, []byte) {
	body := bytes.Clone(c.body)
	number := fmt.Appendf(nil, "%020d", c.next.Add(1))
	name := bytes.Map(letter, number)
	for _, mark := range c.marks {
		fill(body[mark.begins:mark.ends], name)
	}
	if c.uid.ends == 0 {
		return body, nil
	}
	uid := body[c.uid.begins:c.uid.ends]
	fill(uid[len(uid)-12:], number)
	return body, uid
}

// Names that an API server makes up are of these: neither words nor parts of any.
func letter(digit rune) rune { return rune("bcdfghjklm"[digit-'0']) }

// The last digits of a number, as many as there is room for.
func fill(room, number []byte) { copy(room, number[len(number)-len(room):]) }
