//! One connection to the server.

use std::future::poll_fn;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Notification};

use crate::distributed::error::StoreError;

use super::address::Address;
use super::fault;

/// A connection. Dropped, it is closed at once: no farewell that a stopped server could hold up.
pub(super) struct Wire {
    client: Client,
    driver: AbortHandle,
}

impl Wire {
    /// Connects. `hear` is called with what the server tells unasked; the task ends with the connection.
    pub(super) async fn connect(
        address: &Address,
        hear: impl FnMut(Notification) + Send + 'static,
    ) -> Result<(Self, JoinHandle<()>), StoreError> {
        let config = address.config();
        let (client, task) = match address.tls() {
            Some(tls) => {
                let (client, connection) = config.connect(tls).await.map_err(fault::of_connecting)?;
                (client, tokio::spawn(drive(connection, hear)))
            }
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(fault::of_connecting)?;
                (client, tokio::spawn(drive(connection, hear)))
            }
        };
        Ok((Self { client, driver: task.abort_handle() }, task))
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Closes it.
    pub(super) fn cut(&self) {
        self.driver.abort();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Moves bytes until the connection ends.
async fn drive<S, T>(mut connection: Connection<S, T>, mut hear: impl FnMut(Notification))
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            hear(notification);
        }
    }
}
