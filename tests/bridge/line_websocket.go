package main

import (
	"context"
	"encoding/json"
	"io"

	"github.com/coder/websocket"
)

// webLine is either end of a WebSocket session.
type webLine struct {
	conn *websocket.Conn
	code websocket.StatusCode // it is ended with
}

func (l webLine) send(m message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return l.conn.Write(context.Background(), websocket.MessageText, data)
}

func (l webLine) receive() (message, error) {
	var m message
	_, data, err := l.conn.Read(context.Background())
	if err != nil {
		switch websocket.CloseStatus(err) {
		case websocket.StatusNormalClosure, websocket.StatusGoingAway:
			return m, io.EOF
		}
		return m, err
	}
	return m, json.Unmarshal(data, &m)
}

func (l webLine) end() { _ = l.conn.Close(l.code, "") }
