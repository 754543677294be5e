//! A client that does not open a stream's window holds the response, and keeps its connection alive
//! by other means: the send timeout resets the stream, and only the stream.

use std::time::Instant;

use hyper::body::Body as _;

use super::*;

/// A connection whose streams may bring this many bytes before the client reads.
async fn connect_with_window(bytes: u32, address: SocketAddr) -> SendRequest<Body> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(bytes).initial_connection_window_size(16 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn a_stream_that_takes_nothing_is_reset() {
    let origin = Origin::start(|_| {
        origin::answer("200 OK", "Cache-Control: no-store\r\n", &vec![b'x'; 2_000_000])
    });
    let address = common::free_address();
    let admin = common::free_address();
    let config = common::server::front_config(
        address,
        &format!(
            "server {{ workers 1; admin \"{admin}\"; limits {{ send-timeout \"1s\"; }}; }}\n\
             cache {{ memory \"8MiB\"; object-max \"1MiB\"; }}"
        ),
        &format!(
            "route \"/proxied\" {{ proxy \"{}\"; }}\nroute \"/*\" {{ files \".\"; }}",
            origin.url()
        ),
    );
    let weir = Weir::run(&config, &[address, admin]);
    for (name, len) in [("small", 500), ("stored", 500_000), ("streamed", 3_000_000)] {
        std::fs::write(weir.directory().join(name), vec![b'x'; len]).unwrap();
    }
    // No window at all; and one that the first piece of a stored body more than fills, so that all
    // of it lies in the server's queue.
    for window in [0, 60_000] {
        let sender = connect_with_window(window, address).await;
        let mut stalled = Vec::new();
        for path in ["/small", "/stored", "/stored", "/streamed", "/proxied"] {
            if window > 0 && path == "/small" {
                continue;
            }
            let asked = request(Method::GET, path).body(empty()).unwrap();
            let response = sender.clone().send_request(asked).await.unwrap();
            assert_eq!(response.status(), 200, "{path}");
            stalled.push((path, response.into_body()));
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(2500) {
            // The connection is in use all the time.
            let head = request(Method::HEAD, "/small").body(empty()).unwrap();
            assert_eq!(send(&sender, head).await.unwrap().status, 200);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for (path, body) in stalled {
            let expected = body.size_hint().exact().unwrap();
            let read = tokio::time::timeout(PATIENCE, read_until_error(body)).await;
            let received = read.expect("the stream is reset").expect_err(path);
            assert!(received < expected, "{path}: all of {received} bytes came");
        }
        let head = request(Method::HEAD, "/small").body(empty()).unwrap();
        assert_eq!(send(&sender, head).await.unwrap().status, 200, "only streams were reset");
    }
    let metrics = common::client::get(admin, "localhost", "/metrics").unwrap();
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("\nweir_streams_stalled_total 9\n"), "{metrics}");
}

#[tokio::test]
async fn a_stream_that_takes_little_gets_all() {
    let (weir, address) = Weir::front(
        "server { workers 1; admin \"off\"; limits { send-timeout \"1s\"; }; }",
        "route \"/*\" { files \".\"; }",
    );
    let content = pattern(400_000);
    std::fs::write(weir.directory().join("file"), &content).unwrap();
    let sender = connect_with_window(40_000, address).await;
    let asked = request(Method::GET, "/file").body(empty()).unwrap();
    let mut body = sender.clone().send_request(asked).await.unwrap().into_body();
    let (began, mut received) = (Instant::now(), Vec::new());
    while let Some(frame) = body.frame().await {
        received.extend_from_slice(&frame.unwrap().into_data().unwrap());
        tokio::time::sleep(Duration::from_millis(90)).await;
    }
    assert!(received == content, "{} bytes", received.len());
    assert!(began.elapsed() > Duration::from_millis(1500), "{:?}", began.elapsed());
}

/// Bytes received until the end (`Ok`) or an error.
async fn read_until_error(mut body: hyper::body::Incoming) -> Result<u64, u64> {
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => received += frame.data_ref().map_or(0, |data| data.len() as u64),
            Err(_) => return Err(received),
        }
    }
    Ok(received)
}
