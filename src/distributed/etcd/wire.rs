//! One request to one server, over HTTP.

use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::config::Config;
use ureq::http::Response;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::distributed::tls::choose_arithmetic;

use super::fault::{self, Effect, Fault, Refusal};

/// Something to ask.
pub(super) struct Request {
    /// After `/v3/`.
    pub(super) path: &'static str,
    pub(super) body: Value,
    pub(super) effect: Effect,
}

/// A reply, which can be that the server refuses it.
pub(super) struct Reply {
    /// Just before the request was sent.
    pub(super) asked: Instant,
    pub(super) said: Result<Value, Refusal>,
}

/// Connections that wait for the next request.
pub(super) struct Wire {
    agent: Agent,
    config: Config,
}

/// So many are kept for each server.
const KEPT: usize = 8;
/// Not for longer than this.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// So long a watch may take to begin.
const BEGIN: Duration = Duration::from_secs(2);

impl Wire {
    pub(super) fn new(is_tls: bool) -> Self {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // Neither where the environment says, nor where an answer says.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent("perkey")
            .max_idle_connections_per_host(KEPT)
            .max_idle_age(KEPT_FOR);
        if is_tls {
            choose_arithmetic();
            // What cannot be read is not trusted.
            let certificates = rustls_native_certs::load_native_certs().certs;
            let certificates = certificates.iter().map(|known| Certificate::from_der(known).to_owned());
            let roots = RootCerts::Specific(certificates.collect::<Vec<_>>().into());
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        let config = config.build();
        Self { agent: Agent::new_with_config(config.clone()), config }
    }

    /// Sends a request, and waits for the reply.
    pub(super) fn ask(
        &self,
        endpoint: &str,
        request: &Request,
        token: Option<&str>,
        until: Instant,
    ) -> Result<Reply, Fault> {
        let effect = request.effect;
        let asked = Instant::now();
        // At least a moment: no time at all would be refused before it is tried.
        let left = until.saturating_duration_since(asked).max(Duration::from_millis(1));
        let sent = self.agent.post(format!("{endpoint}/v3/{}", request.path)).config();
        // What is over before the rest has not reached the server.
        let sent =
            sent.timeout_global(Some(left)).timeout_resolve(Some(left / 2)).timeout_connect(Some(left / 2)).build();
        let sent = sent.header("Content-Type", "application/json");
        let sent = token.into_iter().fold(sent, |sent, token| sent.header("Authorization", token));
        let received = sent.send(request.body.to_string()).and_then(|mut response| {
            let bytes = response.body_mut().read_to_vec()?;
            Ok((response, bytes))
        });
        let (response, bytes) = received.map_err(|error| fault::of_transport(error, effect, asked.elapsed()))?;
        Ok(Reply { asked, said: said(&response, &bytes, effect)? })
    }

    /// A way to one stream of messages, which can be cut off.
    pub(super) fn stream(&self) -> Stream {
        Stream { agent: Agent::new_with_config(self.config.clone()) }
    }
}

/// What the reply says.
fn said(response: &Response<Body>, bytes: &[u8], effect: Effect) -> Result<Result<Value, Refusal>, Fault> {
    let status = response.status().as_u16();
    // Of a stream the first message.
    let message = serde_json::Deserializer::from_slice(bytes).into_iter().next();
    match message {
        Some(Ok(Value::Object(message))) => match of_message(Value::Object(message)) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(said) if status == 200 => Ok(Ok(said)),
            Ok(_) => Err(fault::of_status(status, effect)),
        },
        _ if status == 200 => Err(fault::of_reply(effect)),
        _ => Err(fault::of_status(status, effect)),
    }
}

/// A message as it is, or out of a stream: errors can also be in those that begin well.
fn of_message(mut message: Value) -> Result<Value, Refusal> {
    let of = |error: &Value| {
        let code = ["grpc_code", "code"].into_iter().find_map(|name| error[name].as_u64());
        let said = ["message", "error"].into_iter().find_map(|name| error[name].as_str());
        code.map(|code| Refusal { code, message: said.unwrap_or_default().to_owned() })
    };
    match of(&message["error"]).or_else(|| of(&message)) {
        Some(refusal) => Err(refusal),
        None if message["result"].is_object() => Ok(message["result"].take()),
        None => Ok(message),
    }
}

/// A connection of its own for one stream of messages.
#[derive(Clone)]
pub(super) struct Stream {
    agent: Agent,
}

impl Stream {
    /// The messages that follow a request, until the stream ends, or somebody cuts it off.
    pub(super) fn open(
        &self,
        endpoint: &str,
        request: &Request,
        token: Option<&str>,
    ) -> Option<impl Iterator<Item = Value>> {
        let sent = self.agent.post(format!("{endpoint}/v3/{}", request.path)).config();
        let begin = Some(BEGIN);
        let sent = sent.timeout_resolve(begin).timeout_connect(begin).timeout_recv_response(begin).build();
        // Else one in a part of the cluster that has no majority would be silent for ever.
        let sent = sent.header("Content-Type", "application/json").header("Grpc-Metadata-hasleader", "true");
        let sent = token.into_iter().fold(sent, |sent, token| sent.header("Authorization", token));
        let response = sent.send(request.body.to_string()).ok()?;
        let reader = std::io::BufReader::new(response.into_body().into_reader());
        let messages = serde_json::Deserializer::from_reader(reader).into_iter::<Value>();
        Some(messages.map_while(|message| of_message(message.ok()?).ok()))
    }

    /// Ends it now, whoever reads it, and whatever it does.
    pub(super) fn cut(self) {
        self.agent.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_are_found_wherever_they_are() {
        let streamed = json!({"error": {"grpc_code": 14, "http_code": 503, "message": "etcdserver: no leader"}});
        let plain =
            json!({"error": "etcdserver: user name is empty", "message": "etcdserver: user name is empty", "code": 3});
        let newer = json!({"code": 5, "message": "etcdserver: requested lease not found", "details": []});
        for (message, code, said) in [(streamed, 14, "no leader"), (plain, 3, "is empty"), (newer, 5, "not found")] {
            let refusal = of_message(message).unwrap_err();
            assert_eq!(refusal.code, code);
            assert!(refusal.message.contains(said), "{refusal:?}");
        }
        assert_eq!(of_message(json!({"result": {"TTL": "5"}})).unwrap(), json!({"TTL": "5"}));
        assert_eq!(of_message(json!({"TTL": "5"})).unwrap(), json!({"TTL": "5"}));
    }
}
